"""What a browser does on pretix's page: the kit posts the payment method's name, and pretix's form
the payment provider's.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from tillgate_pretix.orders import identifier_of


def choosing(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Press pretix's radio button for the payment method that is posted."""

    def choose(request: HttpRequest) -> HttpResponse:
        if request.method == "POST" and "method" in request.POST:
            pressed = request.POST.copy()
            pressed["payment"] = identifier_of(str(pressed["method"]))
            request.POST = pressed  # type: ignore[assignment]  # as the form would have sent it
        return get_response(request)

    return choose
