"""What the shop changes of django-oscar-api."""
