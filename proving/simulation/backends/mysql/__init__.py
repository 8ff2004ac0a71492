"""Django's mysql, interposed."""
