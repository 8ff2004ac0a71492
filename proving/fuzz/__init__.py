"""Fuzz: any input that a stranger, a shopper's browser, the gateway or a file on disk may send,
drawn by the million.

An input is drawn from a `random.Random`, which has three sources: a seed, so a run can be repeated
(`python -m proving.fuzz`); hypothesis, which shrinks its findings (`test_fuzz.py`); and the bytes
of a coverage-guided fuzzer (`guided.py`).
"""
