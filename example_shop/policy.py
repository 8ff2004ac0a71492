"""The content security policy of the shop. Oscar's pages have scripts in them, so it bounds the
pages without scripts of Oscar's.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "form-action 'self'; base-uri 'self'; object-src 'none'; frame-ancestors 'none'"


def told(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Tell the browser the policy with every page."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return answer
