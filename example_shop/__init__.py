"""Fold & Margin: a small stationery shop on django-oscar that takes money with Tillgate. `make
demo` runs it on the sandbox.
"""
