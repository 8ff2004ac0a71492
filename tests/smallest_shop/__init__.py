"""The smallest shop: one model, one plugin. What the tutorial "your own shop in ten minutes"
builds.
"""
