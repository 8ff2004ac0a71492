"""The tests; they mirror src."""
