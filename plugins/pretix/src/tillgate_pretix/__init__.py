"""Tillgate for pretix: one account per event, one payment method for each payment method."""

__version__ = "0.1.0"
