"""The application for gunicorn: `gunicorn example_shop.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_shop.production")

application = get_wsgi_application()
