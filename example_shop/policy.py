"""The content security policy of the shop. Oscar's pages have scripts in them, so it bounds what
needs none of these.
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
