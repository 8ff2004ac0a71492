"""The pages as users see and use them, in a real browser."""
