"""Refunds: queued, sent once, settled."""
