"""Payments: started, reconciled with the gateway, and announced by notifications."""
