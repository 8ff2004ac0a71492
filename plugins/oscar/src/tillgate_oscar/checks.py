"""System checks: `manage.py check` reports problems that keep shoppers of an Oscar shop from
paying, with the line to add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as project
from django.db import router
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string
from oscar.core.loading import get_class, get_model

from tillgate import ConfigurationError, TillgateError, shop
from tillgate_oscar.checkout.choice import has_own_payment_handling
from tillgate_oscar.classes import OVERLAYS
from tillgate_oscar.conf import get_settings

CHECKS: Final = shop.CheckSet("tillgate_oscar")
_error, _warning = CHECKS.error, CHECKS.warning


@CHECKS.area
def check_settings() -> shop.Found:
    """Whether TILLGATE_OSCAR can be read."""
    try:
        get_settings()
    except ConfigurationError as error:
        yield _error(
            1,
            str(error),
            "Correct TILLGATE_OSCAR in the project's settings, or remove it: none of it is needed.",
        )


@CHECKS.area
def check_classes() -> shop.Found:
    """Whether Oscar uses our mixins."""
    loaded = {
        name: (get_class(module, name), import_string(path))
        for (module, name), path in OVERLAYS.items()
    }
    missing = [
        name
        for name, (found, mixin) in loaded.items()
        if isinstance(found, type) and not issubclass(found, mixin)
    ]
    if missing:
        message = (
            "Oscar does not know how to pay with Tillgate: the mixins of "
            f"{', '.join(missing)} are not in place."
        )
        hint = (
            'Set OSCAR_DYNAMIC_CLASS_LOADER = "tillgate_oscar.classes.load", or call '
            "tillgate_oscar.classes.overlay in your own loader."
        )
        yield _error(3, message, hint)


@CHECKS.area
def check_addresses() -> shop.Found:
    """Whether the pages have addresses."""
    try:
        reverse("tillgate_oscar:order", args=["ticket"])
    except NoReverseMatch:
        hint = (
            'Add path("payments/", include("tillgate_oscar.urls")) to the project\'s '
            "urlpatterns; Tillgate's own pages are in it."
        )
        yield _error(4, "The pages have no address: no shopper could pay.", hint)


@CHECKS.area
def check_statuses() -> shop.Found:
    """Whether an order can wait for its payment, and then become paid or cancelled."""
    try:
        settings = get_settings()
    except ConfigurationError:
        return  # check_settings reports it
    pipeline = get_model("order", "Order").pipeline
    pending, others = settings.pending_status, (settings.paid_status, settings.cancelled_status)
    missing = [
        status
        for status in others
        if status not in pipeline.get(pending, ()) or status not in pipeline
    ]
    if missing or pending not in pipeline:
        message = (
            f"OSCAR_ORDER_STATUS_PIPELINE does not lead from {pending!r} to "
            f"{' and to '.join(map(repr, missing or others))}."
        )
        hint = (
            f"Add to it: {pending!r}: {others!r}, and an entry for each of these two; "
            "or name your own statuses in TILLGATE_OSCAR: PENDING_STATUS, PAID_STATUS, "
            "CANCELLED_STATUS."
        )
        yield _error(5, message, hint)


@CHECKS.area
def check_initial_status() -> shop.Found:
    """Whether staff can change the status of an order that is not paid with Tillgate, such as a
    free one or one for cash.
    """
    try:
        settings = get_settings()
    except ConfigurationError:
        return  # check_settings reports it
    others = settings.other_methods
    initial, pipeline = (
        getattr(project, "OSCAR_INITIAL_ORDER_STATUS", None),
        get_model("order", "Order").pipeline,
    )
    if initial and initial not in pipeline:
        message = (
            f"OSCAR_INITIAL_ORDER_STATUS {initial!r} is not in OSCAR_ORDER_STATUS_PIPELINE: "
            "an order that is free or paid in another way keeps it for ever."
        )
        yield _warning(
            3,
            message,
            f"Add to OSCAR_ORDER_STATUS_PIPELINE an entry for {initial!r}, or correct "
            "OSCAR_INITIAL_ORDER_STATUS.",
        )
    if (
        apps.is_installed("oscarapi")
        and (of_api := getattr(project, "OSCARAPI_INITIAL_ORDER_STATUS", "new")) not in pipeline
    ):
        message = (
            f"OSCARAPI_INITIAL_ORDER_STATUS {of_api!r} is not in "
            "OSCAR_ORDER_STATUS_PIPELINE: no order of the API can be paid or moved."
        )
        yield _warning(
            3,
            message,
            f"Set OSCARAPI_INITIAL_ORDER_STATUS = {settings.pending_status!r}, so that the orders "
            "of django-oscar-api await payment.",
        )
    if others and initial in (None, "", settings.pending_status):
        has = (
            f"is {initial!r}: an order paid in one of OTHER_METHODS looks as if it awaits "
            "Tillgate's payment."
        )
        has_none = (
            "is not set: an order paid in one of OTHER_METHODS has no status, and keeps "
            "none for ever."
        )
        message = f"OSCAR_INITIAL_ORDER_STATUS {has if initial else has_none}"
        yield _warning(
            3,
            message,
            "Set it to a status of your own that OSCAR_ORDER_STATUS_PIPELINE has, such as "
            "'Pending'.",
        )


@CHECKS.area
def check_refunded_statuses() -> shop.Found:
    """Whether the pipeline leads to the statuses of refunded orders."""
    try:
        settings = get_settings()
    except ConfigurationError:
        return  # check_settings reports it
    pipeline = get_model("order", "Order").pipeline
    for name in ("refunded_status", "partly_refunded_status"):
        status = getattr(settings, name)
        if status is not None and (
            status not in pipeline or status not in pipeline.get(settings.paid_status, ())
        ):
            message = (
                f"{name.upper()} {status!r} is never set: OSCAR_ORDER_STATUS_PIPELINE does "
                f"not lead to it from {settings.paid_status!r}."
            )
            yield _warning(
                4,
                message,
                "Add it to OSCAR_ORDER_STATUS_PIPELINE, with an entry of its own, or remove "
                f"{name.upper()}.",
            )


@CHECKS.area
def check_way_of_paid_orders() -> shop.Found:
    """Whether a paid order can go on in the shop's own pipeline."""
    try:
        settings = get_settings()
    except ConfigurationError:
        return  # check_settings reports it
    pipeline, paid = get_model("order", "Order").pipeline, settings.paid_status
    ends = {
        paid,
        settings.cancelled_status,
        settings.refunded_status,
        settings.partly_refunded_status,
    }
    ours = {
        settings.pending_status,
        *pipeline.get(settings.pending_status, ()),
        *_reached(pipeline, paid),
    } | ends
    further = [status for status in pipeline if status not in ours]
    if (
        paid not in pipeline
        or not further
        or any(_reached(pipeline, status) & (ours - ends) for status in further)
    ):
        return
    message = (
        f"OSCAR_ORDER_STATUS_PIPELINE does not lead from {paid!r} to "
        f"{', '.join(map(repr, further))}: "
        "staff cannot move an order on to them that was paid."
    )
    initial = getattr(project, "OSCAR_INITIAL_ORDER_STATUS", None) or further[0]
    following = next(
        (status for status in pipeline.get(initial, ()) if status in further),
        further[0],
    )
    hint = (
        f"Let {paid!r} lead to the status that comes next, as in {paid!r}: ({following!r}, "
        f"{settings.cancelled_status!r}), or order_statuses(..., after_paid={following!r})."
    )
    yield _warning(7, message, hint)


def _reached(pipeline: Mapping[str, Iterable[str]], status: str) -> set[str]:
    """Return the statuses that a pipeline leads to from one, in any number of steps."""
    found, left = set[str](), [status]
    while left:
        new = set(pipeline.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


@CHECKS.area
def check_part_payments() -> shop.Found:
    """Whether the shop knows that its own payment handling is not called for orders that are paid
    with Tillgate.
    """
    try:
        said = get_settings().other_ways_to_pay
    except ConfigurationError:
        return  # check_settings reports it
    if said is None and has_own_payment_handling():
        message = (
            "PaymentDetailsView.handle_payment is the shop's own: an order that is paid "
            "with Tillgate does not call it."
        )
        hint = (
            'Set TILLGATE_OSCAR = {"OTHER_WAYS_TO_PAY": True} if it is another way to pay the '
            "whole order, False if OTHER_METHODS has it. "
            "If it takes a part of the total, such as a gift card, take that in "
            "save_payment_details (docs/oscar.md#part-payments) first: "
            "Tillgate asks for the rest."
        )
        yield _warning(5, message, hint)


@CHECKS.area
def check_databases() -> shop.Found:
    """Whether an order and Tillgate's rows change in one transaction."""
    oscars, ours = get_model("order", "Order"), shop.database()
    hint = "Let DATABASE_ROUTERS send both to one database, whether they are written or read."
    if (written := router.db_for_write(oscars)) != ours:
        yield _error(
            7,
            f"Oscar's orders are in database {written!r} and Tillgate's rows in {ours!r}: they "
            "cannot change together.",
            hint,
        )
    elif (read := router.db_for_read(oscars)) != ours:
        yield _error(
            7,
            f"Oscar's orders are written in database {ours!r} and read in {read!r}: one just paid "
            "could seem to wait.",
            hint,
        )


@CHECKS.area
def check_currency() -> shop.Found:
    """Whether baskets are in a currency that a payment method takes."""
    theirs, ours = project.OSCAR_DEFAULT_CURRENCY, _taken_currencies()
    if ours and theirs not in ours:
        message = (
            f"OSCAR_DEFAULT_CURRENCY is {theirs}: only orders in {', '.join(ours)} can be "
            "paid with Tillgate."
        )
        hint = (
            f"Give the account a DIALECT and CURRENCIES with {theirs} "
            "(docs/how-to/take-other-currencies.md); "
            f'or set OSCAR_DEFAULT_CURRENCY = "{ours[0]}" if the shop sells in it; or silence '
            f"this if some products are sold in {ours[0]}."
        )
        yield _warning(1, message, hint)


def _taken_currencies() -> list[str]:
    """Return the currencies in which an offered payment method takes orders; none where the
    settings cannot be read, which is reported.
    """
    try:
        return list(
            dict.fromkeys(
                currency for method in shop.payment_methods() for currency in method.currencies
            ),
        )
    except TillgateError:
        return []


@CHECKS.database_area
def check_prices() -> shop.Found:
    """Whether products are priced in a currency that no payment method takes."""
    prices = get_model("partner", "StockRecord")._base_manager.order_by("price_currency")
    theirs = set(prices.values_list("price_currency", flat=True).distinct()) - {
        project.OSCAR_DEFAULT_CURRENCY,
    }
    if (ours := _taken_currencies()) and (strange := sorted(theirs - set(ours))):
        message = (
            f"Products are priced in {', '.join(strange)}: only orders in {', '.join(ours)} "
            "can be paid with Tillgate."
        )
        hint = (
            "Give the account these CURRENCIES (docs/how-to/take-other-currencies.md), or "
            "silence this if they are paid in another way."
        )
        yield _warning(1, message, hint)


@CHECKS.database_area
def check_statuses_of_orders() -> shop.Found:
    """Whether staff can move the orders that the shop has already."""
    model = get_model("order", "Order")
    statuses = model._base_manager.order_by("status").values_list("status", flat=True).distinct()
    if missing := [status for status in statuses if status and status not in model.pipeline]:
        message = (
            "Orders have statuses that OSCAR_ORDER_STATUS_PIPELINE lacks: "
            f"{', '.join(map(repr, missing))}. They keep them for ever."
        )
        yield _warning(
            6,
            message,
            "Keep the shop's own statuses: add Tillgate's with OSCAR_ORDER_STATUS_PIPELINE |= "
            "{...}.",
        )


@CHECKS.database_area
def check_domain() -> shop.Found:
    """Whether mail leads to the shop: Oscar takes the host from the site, which is example.com in a
    new database.
    """
    # models cannot be imported while the apps are being loaded
    from django.contrib.sites.models import (
        Site,
    )

    try:
        host = urlsplit(shop.absolute_url("tillgate_oscar:order", "ticket")).netloc
    except (ConfigurationError, NoReverseMatch):
        return  # Tillgate's own checks report it, or check_addresses does
    site = Site.objects.filter(pk=getattr(project, "SITE_ID", None) or 0).first()
    if site is not None and site.domain != host:
        message = (
            f"The links in Oscar's mails lead to {site.domain!r}, the domain of the site, "
            f"and the shop is at {host!r} by PUBLIC_URL."
        )
        hint = (
            f'Set the domain of site {site.pk} to "{host}", in the admin under Sites, or '
            "silence this if both are right."
        )
        yield _warning(2, message, hint)
