"""Tillgate as a Django app: the rows, the operations on them, pages, admin and worker. Add
`tillgate.django` to INSTALLED_APPS.
"""
