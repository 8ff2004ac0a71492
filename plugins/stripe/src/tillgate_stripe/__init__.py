"""Stripe Checkout as a gateway of Tillgate: hosted payment pages, refunds, disputes and signed
notifications.
"""

__version__ = "0.1.0"
