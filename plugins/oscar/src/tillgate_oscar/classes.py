"""Oscar's documented way to change its classes: `OSCAR_DYNAMIC_CLASS_LOADER =
"tillgate_oscar.classes.load"`.

Each class of the table gets a mixin on top, whether it is Oscar's own or one of a shop that forked
the app. The shop does not need to fork an app.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from oscar.core.loading import default_class_loader

OVERLAYS: Final = {
    ("basket.views", "BasketView"): "tillgate_oscar.checkout.views.BasketMixin",
    ("checkout.views", "IndexView"): "tillgate_oscar.checkout.views.StepMixin",
    ("checkout.views", "ShippingAddressView"): "tillgate_oscar.checkout.views.StepMixin",
    ("checkout.views", "ShippingMethodView"): "tillgate_oscar.checkout.views.StepMixin",
    ("checkout.views", "PaymentMethodView"): "tillgate_oscar.checkout.views.PaymentMethodMixin",
    ("checkout.views", "PaymentDetailsView"): "tillgate_oscar.checkout.views.PaymentDetailsMixin",
    ("checkout.views", "ThankYouView"): "tillgate_oscar.checkout.views.ThankYouMixin",
    ("customer.views", "OrderDetailView"): "tillgate_oscar.checkout.views.OrderPageMixin",
    ("customer.views", "AnonymousOrderDetailView"): "tillgate_oscar.checkout.views.OrderPageMixin",
    ("customer.alerts.utils", "AlertsDispatcher"): "tillgate_oscar.alerts.AlertsDispatcherMixin",
    ("order.processing", "EventHandler"): "tillgate_oscar.processing.EventHandlerMixin",
    (
        "dashboard.orders.views",
        "OrderDetailView",
    ): "tillgate_oscar.dashboard.orders.OrderDetailMixin",
    ("dashboard.orders.views", "OrderListView"): "tillgate_oscar.dashboard.orders.OrderListMixin",
    ("dashboard.views", "IndexView"): "tillgate_oscar.dashboard.finding.IndexMixin",
    ("dashboard.menu", "get_nodes"): "tillgate_oscar.dashboard.menu.with_pages",
}
"""Oscar's module and class, and the mixin that goes on top of it; or a function and its wrapper."""


def load(
    module_label: str,
    classnames: Sequence[str],
    module_prefix: str = "oscar.apps",
) -> list[Any]:
    """Load classes as Oscar does by default, with our mixins on top."""
    found = default_class_loader(module_label, classnames, module_prefix)
    return [
        overlay(module_label, name, loaded) for name, loaded in zip(classnames, found, strict=True)
    ]


def overlay(module_label: str, name: str, loaded: Any) -> Any:
    """Return a class with its mixin on top, for a project that has a class loader of its own;
    others are returned as they are.
    """
    path = OVERLAYS.get((module_label, name))
    if path is None:
        return loaded
    for app in ("tillgate.django", "tillgate_oscar"):
        if not apps.is_installed(app):
            raise ImproperlyConfigured(
                f"OSCAR_DYNAMIC_CLASS_LOADER needs an app that is not installed: add {app!r} to "
                "INSTALLED_APPS.",
            )
    return _on_top(import_string(path), loaded)


# the same class every time: Oscar loads a class in several places, which compare and patch it
@functools.cache
def _on_top(mixin: Any, loaded: Any) -> Any:
    if not isinstance(loaded, type):
        return mixin(loaded)
    if issubclass(loaded, mixin):
        return loaded
    return type(
        loaded.__name__,
        (mixin, loaded),
        {"__module__": loaded.__module__, "__doc__": loaded.__doc__},
    )
