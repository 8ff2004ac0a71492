"""Writes the generated parts of the documentation: `make reference` and `make conformance`."""
