"""Payments: started, reconciled with the gateway, and told of by notifications."""
