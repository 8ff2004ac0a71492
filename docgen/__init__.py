"""Writes the generated parts of the documentation: `make architecture`, `make reference` and `make conformance`."""
