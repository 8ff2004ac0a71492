"""A shop on Tillgate, measured beside a view that only inserts a row. Its settings are chosen by
the BENCHMARK_* variables.
"""
