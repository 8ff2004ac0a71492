"""Tools of the project: generated documentation, benchmarks, releases."""
