"""Django's sqlite3, interposed."""
