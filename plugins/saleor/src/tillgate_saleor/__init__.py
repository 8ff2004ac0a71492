"""Tillgate for Saleor: a payment App. The import works without settings and apps."""

__version__ = "0.1.0"
