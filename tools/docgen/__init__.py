"""Writes the generated parts of the documentation: `python -m tools.docgen architecture`, `... reference`, and `nox -s conformance`."""
