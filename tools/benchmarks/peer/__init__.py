"""A project on dj-stripe, as its documentation sets it up. It runs in an environment of its own and
knows nothing of Tillgate.
"""
