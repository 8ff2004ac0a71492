"""Writes the generated parts of the documentation: `python -m docgen architecture`, `... reference`, and `nox -s conformance`."""
