"""Django's postgresql, interposed."""
