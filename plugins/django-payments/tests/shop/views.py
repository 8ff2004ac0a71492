"""The shop's pages: the checkout as the library's documentation has it, and thanks."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from payments import PaymentError, RedirectNeeded

from tests.shop.models import Payment


def checkout(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the shopper choose among the shop's variants, and go on to pay."""
    payment = get_object_or_404(Payment, pk=pk)
    if request.method != "POST":
        return HttpResponse("How would you like to pay?")
    payment.variant = request.POST["method"].replace("_", "-")
    try:
        payment.get_form()
    except RedirectNeeded as way:
        payment.save(update_fields=["variant"])
        return redirect(str(way))
    except (
        PaymentError,
        ValueError,
    ) as error:  # the library raises ValueError for a variant that does not exist
        return HttpResponse(str(error), status=409)
    raise AssertionError("the provider has no form")


def thanks(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("Thank you")
