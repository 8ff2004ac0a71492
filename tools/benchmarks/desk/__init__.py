"""A shop with years of payments and its staff's pages, measured beside Django's own list of the
same rows.
"""
