"""The service: a Django project with nothing but the App, its sweeper and the admin, ready to run."""
