"""Tillgate for django-oscar: order first, then redirect; enabled by settings alone."""

__version__ = "0.1.0"
