"""Emulators of Stripe for tests: a fake of our own, getpaid's simulator, and the drivers of both
for the conformance kits.
"""
