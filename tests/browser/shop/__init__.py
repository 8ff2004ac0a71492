"""The example shop as its shoppers and its staff meet it: real processes, a real browser."""
