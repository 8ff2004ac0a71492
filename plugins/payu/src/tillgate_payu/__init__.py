"""PayU (REST API 2.1 of PayU GPO Europe) as a gateway of Tillgate: hosted payment pages, refunds
and signed notifications.
"""

__version__ = "0.1.0"
