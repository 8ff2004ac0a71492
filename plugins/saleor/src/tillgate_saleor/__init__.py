"""Tillgate for Saleor: a payment App. Importing it needs neither settings nor apps."""

__version__ = "0.1.0.dev0"
