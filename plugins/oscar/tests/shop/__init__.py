"""What is this shop's own: how it ships, what it taxes, and its cash on delivery."""
