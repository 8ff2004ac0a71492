"""Django's own database backends, between which and their users a simulation may stand."""
