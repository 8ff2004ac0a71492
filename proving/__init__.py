"""The long proofs: `python -m proving` lists them."""
