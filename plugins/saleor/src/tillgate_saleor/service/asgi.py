"""The service as an ASGI application, for a server of your own; `tillgate-saleor serve` runs it
with the worker beside it.
"""

import os

from django.core.asgi import get_asgi_application

from tillgate_saleor.service.bounds import bounded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tillgate_saleor.service.settings")

application = bounded(get_asgi_application())
