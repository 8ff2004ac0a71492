"""The health address: whether this process answers and reaches its database, for programs that
start it again or send it requests.
"""

from __future__ import annotations

import logging

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

_log = logging.getLogger("tillgate")


@never_cache
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    """Answer 200 if the service can work, else 503. `tillgate doctor` says more; strangers read no
    more here.
    """
    try:
        with connection.cursor() as cursor:
            # fails before the migrations too
            cursor.execute("SELECT 1 FROM tillgate_order WHERE 1 = 0")
    except DatabaseError:
        _log.exception("the database does not answer")
        return JsonResponse({"healthy": False}, status=503)
    return JsonResponse({"healthy": True})
