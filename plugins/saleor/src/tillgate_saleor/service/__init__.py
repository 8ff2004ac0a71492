"""The service: a Django project with nothing but the App, its worker and the admin, ready to
run.
"""
