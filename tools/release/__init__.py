"""The release: archives of all distributions, checked, and tried where nothing of the repository is
on any path.
"""
