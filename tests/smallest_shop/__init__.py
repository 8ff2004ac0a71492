"""The smallest shop: one model, one plugin. The tutorial "your own shop in ten minutes" builds
it.
"""
