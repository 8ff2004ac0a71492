"""Orders: their lock, their statuses and their timeline."""
