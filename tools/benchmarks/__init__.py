"""Benchmarks: `python -m tools.benchmarks` measures Tillgate against floors and peers and writes
tools/benchmarks/performance.md.

Every figure is a ratio of contenders that took turns in one run on one machine; none is a promise
of time, and no test asserts one. A further benchmark is a further module here with a function
`run(effort) -> Section`, named in `__main__.BENCHMARKS`.
"""
