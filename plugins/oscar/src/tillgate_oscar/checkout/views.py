"""Mixins on top of Oscar's views of the checkout, and of a shop's own ones that were made from
them. See `tillgate_oscar.classes`.

They act only while the shopper has chosen to pay with Tillgate. Every other way to pay runs
unchanged.
"""

from __future__ import annotations

import logging
from copy import copy
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from django.apps import apps
from django.contrib import messages
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.template.loader import select_template
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from oscar.core.loading import get_class, get_model

from tillgate import shop
from tillgate_oscar import orders
from tillgate_oscar.checkout import choice
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.placing import placing_otherwise

_OURS: Final = "tillgate"
"""The prefix of our form: a shop's own form on the same page may have a field `method` too."""

_MOST_UNPAID_ORDERS: Final = 5
"""So many of a customer's pending orders the basket looks at."""

_log = logging.getLogger("oscar.checkout")


class _CheckoutMixin:
    """The common part of the steps."""

    request: HttpRequest
    checkout_session: Any

    def check_pre_conditions(self, request: HttpRequest) -> None:
        """Redirect a shopper that placed the order and then pressed Back, or pressed twice, to that
        order instead of an empty basket.
        """
        try:
            super().check_pre_conditions(request)  # type: ignore[misc]  # a mixin of Oscar's view
        except get_class("checkout.exceptions", "FailedPreCondition"):
            order, method = _waiting_order(request)
            if order is None:
                raise
            request.session[orders.SESSION_KEY] = order.pk
            raise _failed_precondition(
                self._next_url(order, method, request.POST.get("tillgate_total")),
            ) from None

    def _next_url(self, order: Any, method: str | None, seen: str | None) -> str:
        """Return the address that starts a placed order's payment.

        Return the order's page if no method was chosen or the shopper saw another total.
        """
        total = f"{order.currency} {order.total_incl_tax:.2f}"
        if seen == total and method in choice.offered():
            return shop.pay_path(PLUGIN, str(order.number), method)
        if seen and seen != total:
            said = _(
                "You have placed this order in another window already. Its total is %(total)s.",
            )
            messages.warning(self.request, said % {"total": total})
        return orders.status_url(order.number)

    def _order_total(self) -> Any:
        # of Oscar's view
        return self.build_submission()["order_total"]  # type: ignore[attr-defined]


def _waiting_order(request: HttpRequest) -> tuple[Any, str | None]:
    """Return the unpaid order that this browser placed, or None, and the payment method if it was
    chosen just now.

    A preview that was submitted twice contains both. The session may not be written yet, and loses
    the payment method when it is. Without a preview, a basket with lines in it is the next order,
    and has nothing to do with the last one.
    """
    known: dict[str, Any] = {"pk": request.session.get(orders.SESSION_KEY)}
    method = None
    if seen := orders.read_preview(request.POST.get("tillgate_preview", "")):
        basket, method = seen
        known = {"basket": basket}
    elif not request.basket.is_empty:  # type: ignore[attr-defined]  # set by Oscar's middleware
        return None, None
    order = get_model("order", "Order")._default_manager.filter(**known).first()
    return (
        (order, method)
        if order and orders.waits_for_payment(order, orders.state_of(order))
        else (None, None)
    )


def _unpaid_order(request: HttpRequest) -> Any:
    """Return the newest unpaid order of this browser or of the logged-in customer, or None."""
    chosen = Q(pk=request.session.get(orders.SESSION_KEY))
    if request.user.is_authenticated:
        chosen |= Q(user=request.user)
    pending = (
        get_model("order", "Order")
        ._default_manager.filter(chosen, status=get_settings().pending_status)
        .order_by("-pk")
    )
    newest = pending[:_MOST_UNPAID_ORDERS]
    return next(
        (order for order in newest if orders.needs_payment(order, orders.state_of(order))),
        None,
    )


def _failed_precondition(url: str, message: str | None = None) -> Exception:
    failed: Exception = get_class("checkout.exceptions", "FailedPreCondition")(
        url=url,
        message=message,
    )
    return failed


class StepMixin:
    """A step before the payment: it says where no money moves."""

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Pass the shop's page to the one that extends it."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        return {**context, "step_page": select_template(super().get_template_names())}  # type: ignore[misc]

    def get_template_names(self) -> list[str]:
        """Show the shop's page with the test mode."""
        return ["tillgate_oscar/checkout/step.html"]


class BasketMixin(StepMixin):
    """The basket, which says the same, and leads to an order that waits for its payment."""

    request: HttpRequest

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add the unpaid order of the shopper, with the addresses to pay and to change it."""
        context = super().get_context_data(**options)
        if order := _unpaid_order(self.request):
            may_be_cancelled = orders.may_be_cancelled(order, orders.state_of(order))
            context |= {
                "tillgate_waiting": order,
                "tillgate_pay_url": shop.pay_path(PLUGIN, order.number),
                "tillgate_change_url": orders.change_url(order) if may_be_cancelled else None,
            }
        return context

    def get_template_names(self) -> list[str]:
        """Show the shop's basket with the test mode."""
        return ["tillgate_oscar/basket.html"]


class PaymentMethodMixin(_CheckoutMixin):
    """The step "method": choose one of the payment methods, or go on to the shop's own ways to pay.

    A shop that wants everything on one page sets `shows_methods = True` on its own view and renders
    `{% method_choice method_form %}` in a form that posts to this step: a post with `payment
    method` is ours, any other the shop's.
    """

    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Show the payment methods, or the shop's own page if the shopper asked for it or Tillgate
        cannot take this order.
        """
        if getattr(self, "shows_methods", False):
            return self._others("get", request, *arguments, **options)
        refused = self._why_refused()
        if refused:
            _log.warning("online payment is not offered for this basket: %s", refused)
        if choice.has_other_ways() and (choice.OTHERS in request.GET or refused):
            if refused:
                messages.info(request, refused)
            choice.forget(self.checkout_session)
            return self._others("get", request, *arguments, **options)
        return self._page(self._form(initial=choice.initial(self.checkout_session)), refused)

    def post(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Remember the chosen payment method."""
        refused = self._why_refused()
        form = self._form(request.POST)
        if f"{_OURS}-method" not in request.POST and choice.has_other_ways():
            choice.forget(self.checkout_session)
            return self._others("post", request, *arguments, **options)
        if refused or not form.is_valid():
            return self._page(form, refused)
        choice.remember(self.checkout_session, form.cleaned_data["method"])
        # of Oscar's view
        response: HttpResponse = self.get_success_response()  # type: ignore[attr-defined]
        return response

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Pass the form to the shop's own page, in case it shows the payment methods."""
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        context.setdefault("method_form", self._form(initial=choice.initial(self.checkout_session)))
        return context

    def _form(self, *data: Any, **options: Any) -> shop.MethodForm:
        price, others = choice.price_of(self._order_total()), get_settings().other_methods
        agent = self.request.headers.get("User-Agent", "")
        return shop.MethodForm(
            *data,
            prefix=_OURS,
            price=price,
            others=others,
            user_agent=agent,
            **options,
        )

    def _why_refused(self) -> str | None:
        """Return why nothing in the list can be chosen, or None."""
        return None if get_settings().other_methods else choice.why_not_offered(self._order_total())

    def _others(
        self,
        method: str,
        request: HttpRequest,
        *arguments: Any,
        **options: Any,
    ) -> HttpResponse:
        # of Django's view
        handler = getattr(super(), method, None) or self.http_method_not_allowed  # type: ignore[attr-defined]
        response: HttpResponse = handler(request, *arguments, **options)
        return response

    def _page(self, form: shop.MethodForm, refused: str | None) -> HttpResponse:
        others = (
            f"{reverse('checkout:payment-method')}?{choice.OTHERS}=1"
            if choice.has_other_ways()
            else None
        )
        context = self.get_context_data(method_form=form)
        context |= {
            "refused": refused,
            "others_url": others,
            "is_all_online": not get_settings().other_methods,
        }
        return render(self.request, "tillgate_oscar/checkout/payment_method.html", context)


class PaymentDetailsMixin(_CheckoutMixin):
    """The steps "payment details" and "preview", and the placing of the order, which is paid
    afterwards.
    """

    preview: bool
    _method: str | None = None
    """The payment method for the order that is being placed, or None if the shop takes the payment
    itself.
    """
    _seen: str | None = None
    """Its total, as the shopper saw it."""
    _is_known: bool = False
    """Whether another request has already placed the order and notified the shop."""

    def _chosen(self) -> str | None:
        """Return the chosen payment method, or None on a page that takes its own payment,
        regardless of an earlier choice.

        Other packages derive pages from this view, such as the return page of an express checkout.
        Their `handle_payment` is on top of ours. Without this rule the shopper would pay a second
        time, or Tillgate would cancel the order as unpaid.
        """
        if self._takes_its_own_payment():
            return None
        return choice.chosen(self.checkout_session)

    def _chosen_other(self) -> str | None:
        return None if self._takes_its_own_payment() else choice.chosen_other(self.checkout_session)

    def _takes_its_own_payment(self) -> bool:
        is_checkouts = type(self) is getattr(
            apps.get_app_config("checkout"),
            "payment_details_view",
            None,
        )
        return (
            not is_checkouts and type(self).handle_payment is not PaymentDetailsMixin.handle_payment
        )

    def get_pre_conditions(self, request: HttpRequest) -> list[str]:
        """Tell the template that there is a way to pay."""
        # a mixin of Oscar's view
        return [*super().get_pre_conditions(request), "check_way_to_pay"]  # type: ignore[misc]

    def check_way_to_pay(self, request: HttpRequest) -> None:
        """Send the shopper back to the payment method step, unless the order is free or the chosen
        method can take it.
        """
        if self._takes_its_own_payment():
            return
        total, method = self._order_total(), self._chosen()
        # the basket was edited in another tab, and the chosen shipping method does not fit it
        if total is None and method:
            raise _failed_precondition(reverse("checkout:shipping-method"))
        if total is None or choice.is_free(total):
            return
        step = reverse("checkout:payment-method")
        if method is None:
            if not choice.has_other_ways() and not self._chosen_other():
                raise _failed_precondition(step, _("Please choose how to pay"))
        elif choice.why_not_offered(total):
            choice.forget(self.checkout_session)
            raise _failed_precondition(step)
        elif method not in choice.offered():
            choice.forget(self.checkout_session)
            raise _failed_precondition(
                step,
                _("This way to pay is not offered any more. Please choose another"),
            )

    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Skip the page for payment details if the shop has none of its own: there is nothing to
        enter here.
        """
        names = super().get_template_names()  # type: ignore[misc]  # a mixin of Oscar's view
        if (
            not self.preview
            and (self._chosen() or self._chosen_other())
            and choice.is_oscars_own(select_template(names))
        ):
            return redirect("checkout:preview")
        # a mixin of Oscar's view
        response: HttpResponse = super().get(request, *arguments, **options)  # type: ignore[misc]
        return response

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add to the preview the choice, the displayed total, and the data that a second submission
        needs.

        A page for payment details of the shop's own gets the choice too: for a payment with
        Tillgate the shopper enters nothing there.
        """
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        if not self.preview and (method := self._chosen()):
            context["tillgate_chosen"] = shop.method_label(method)
        if (
            not self.preview
            or not context.get("order_total")
            or choice.is_free(context["order_total"])
        ):
            return context
        # a mixin of Oscar's view
        method, preview_page = self._chosen(), select_template(super().get_template_names())  # type: ignore[misc]
        if (other := self._chosen_other()) and choice.is_oscars_own(preview_page):
            context |= {
                "preview_page": preview_page,
                "tillgate_method": get_settings().other_methods[other],
            }
        elif method:
            context |= {
                "preview_page": preview_page,
                "tillgate_method": shop.method_label(method),
                "tillgate_total": _as_shown(context["order_total"]),
                "tillgate_preview": orders.sign_preview(context["basket"], method),
            }
        return context

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        """Show the shop's preview with Tillgate's part."""
        if "tillgate_method" in context:
            return render(self.request, "tillgate_oscar/checkout/preview.html", context)
        # a mixin of Oscar's view
        response: HttpResponse = super().render_to_response(context, **options)  # type: ignore[misc]
        return response

    def handle_place_order_submission(self, request: HttpRequest) -> HttpResponse:
        """Place the order. If its total differs from the preview, show the preview again
        instead.
        """
        total = self._order_total()
        ours = self._chosen() and not choice.is_free(total)
        if ours and request.POST.get("tillgate_total") != _as_shown(total):
            error = _(
                "The total has changed since you saw it. Please look at your order again before "
                "you place it.",
            )
            # of Oscar's view
            again: HttpResponse = self.render_preview(request, error=error)  # type: ignore[attr-defined]
            return again
        # a mixin of Oscar's view
        response: HttpResponse = super().handle_place_order_submission(request)  # type: ignore[misc]
        return response

    def submit(self, *arguments: Any, **submission: Any) -> HttpResponse:
        """Store the payment method for this order, then submit it as Oscar does."""
        total = submission["order_total"]
        self._method = None if choice.is_free(total) else self._chosen()
        if self._method:
            submission["order_total"], self._seen = _in_cents(total), _as_shown(total)
        # a mixin of Oscar's view
        response: HttpResponse = super().submit(*arguments, **submission)  # type: ignore[misc]
        return response

    def freeze_basket(self, basket: Any) -> None:
        """Leave the basket open until its order is placed. If it were frozen, a second submission
        would find no basket and no order.
        """
        if self._method is None:
            super().freeze_basket(basket)  # type: ignore[misc]  # a mixin of Oscar's view

    def restore_frozen_basket(self) -> None:
        """Reopen a basket that the shop's own way to pay froze. With Tillgate the basket is still
        open, or its order is placed.
        """
        if self._method is None:
            super().restore_frozen_basket()  # type: ignore[misc]  # a mixin of Oscar's view

    def handle_payment(self, order_number: Any, total: Any, **options: Any) -> None:
        """Do nothing: the order is paid after it was placed, so that no paid order can be lost.

        An order that is paid in one of `OTHER_METHODS` gets a payment source of that name, so that
        staff see how it is paid.
        """
        if self._method is not None:
            return
        # a mixin of Oscar's view
        super().handle_payment(order_number, total, **options)  # type: ignore[misc]
        if (other := self._chosen_other()) and not choice.is_written_by_shop(
            type(self),
            "handle_payment",
        ):
            name, models = (
                str(get_settings().other_methods[other]),
                (get_model("payment", "SourceType"), get_model("payment", "Source")),
            )
            kind, _created = models[0].objects.get_or_create(name=name)
            self.add_payment_source(  # type: ignore[attr-defined]  # of Oscar's view
                models[1](
                    source_type=kind,
                    currency=total.currency,
                    amount_allocated=total.incl_tax,
                ),
            )

    def get_initial_order_status(self, basket: Any) -> str | None:
        """Let the order wait for its payment."""
        if self._method:
            return get_settings().pending_status
        # a mixin of Oscar's view
        status: str | None = super().get_initial_order_status(basket)  # type: ignore[misc]
        return status

    def place_order(self, *arguments: Any, **order: Any) -> Any:
        """Place the order, which registers it with Tillgate, both or neither. If the basket's order
        exists already, return that one.

        Two presses of the button submit the same basket. Under the basket's lock the second request
        finds the order of the first.
        """
        if self._method is None:
            with placing_otherwise():
                # a mixin of Oscar's view
                return super().place_order(*arguments, **order)  # type: ignore[misc]
        with transaction.atomic():
            get_model("basket", "Basket")._base_manager.select_for_update().get(
                pk=order["basket"].pk,
            )
            known = (
                get_model("order", "Order")._default_manager.filter(basket=order["basket"]).first()
            )
            if known and orders.is_expected(known):
                self._is_known = True
                return known
            # The order was paid in another way, and a later failure reopened its basket.
            if known and known.status != get_settings().cancelled_status:
                detail = _(
                    "Your order %(number)s has been placed already. Please ask the shop before "
                    "you pay.",
                )
                raise get_class("order.exceptions", "UnableToPlaceOrder")(
                    detail % {"number": known.number},
                )
            # a mixin of Oscar's view
            placed = super().place_order(*arguments, **order)  # type: ignore[misc]
            order[
                "basket"
            ].submit()  # with the order: a basket left frozen by a crash would be placed again
            return placed

    def handle_successful_order(self, order: Any) -> HttpResponse:
        """Send the shopper to pay, and raise nothing: the order is placed. Tillgate sends the mail
        when the payment is paid.

        If the shopper presses several times, only the request that placed the order sends
        `post_checkout`. Shops count orders with that signal.
        """
        if self._method is None:
            # a mixin of Oscar's view
            done: HttpResponse = super().handle_successful_order(order)  # type: ignore[misc]
            return done
        self.checkout_session.flush()
        self.request.session[orders.SESSION_KEY] = order.pk
        response = HttpResponseRedirect(self._next_url(order, self._method, self._seen))
        if self._is_known:
            return response
        try:
            with transaction.atomic():
                # of Oscar's view
                self.send_signal(self.request, response, order)  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("a receiver of post_checkout failed for order %s", order.number)
        return response


def _as_shown(total: Any) -> str:
    return f"{total.currency} {total.incl_tax:.2f}"


def _in_cents(total: Any) -> Any:
    """Return a total rounded as the page shows it.

    Databases round fractions of a cent, which a shop's shipping may contain, in different ways.
    """
    rounded = copy(total)
    for price in ("excl_tax", "incl_tax"):
        setattr(rounded, price, getattr(total, price).quantize(Decimal("0.01"), ROUND_HALF_EVEN))
    return rounded


class ThankYouMixin:
    """The thank-you page: only for paid orders, and for orders that are not Tillgate's."""

    def get(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponse:
        """Redirect the shopper of an unpaid order to the page where they can pay it, or to the page
        that says why they cannot.
        """
        # of Oscar's view
        order, settings = self.get_object(), get_settings()  # type: ignore[attr-defined]
        ours = orders.state_of(order) if order else None
        is_unpaid = ours and order.status in (settings.pending_status, settings.cancelled_status)
        if is_unpaid or orders.is_held_back(order, ours):
            return redirect(orders.status_url(order.number))
        # a mixin of Oscar's view
        response: HttpResponse = super().get(request, *arguments, **options)  # type: ignore[misc]
        return response

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        """Show the shop's page and name the payment method there."""
        if payment := shop.find_payment(PLUGIN, paid_order=context["order"].number):
            names = super().get_template_names()  # type: ignore[misc]  # a mixin of Oscar's view
            context |= {"order_page": select_template(names), "tillgate_payment": payment}
            context["tillgate_method"] = payment.paid_with
            context["tillgate_refunded"] = orders.refunded_text(orders.state_of(context["order"]))
            return render(self.request, "tillgate_oscar/checkout/thank_you.html", context)  # type: ignore[attr-defined]
        # a mixin of Oscar's view
        response: HttpResponse = super().render_to_response(context, **options)  # type: ignore[misc]
        return response


class OrderPageMixin:
    """The order's page, of an account and of a guest: offers to pay an unpaid order, and says where
    no money moves.
    """

    object: Any

    def get_context_data(self, **options: Any) -> dict[str, Any]:
        """Add Tillgate's part, with the address to pay at; only the order's shopper sees this
        page.
        """
        # a mixin of Oscar's view
        context: dict[str, Any] = super().get_context_data(**options)  # type: ignore[misc]
        if self._part:
            context |= {**self._part, "order_page": select_template(self._own_template_names())}
        return context

    def get_template_names(self) -> list[str]:
        """Show the shop's page with Tillgate's part."""
        return ["tillgate_oscar/order_page.html"] if self._part else self._own_template_names()

    @cached_property
    def _part(self) -> dict[str, Any]:
        number, ours = self.object.number, orders.state_of(self.object)
        part: dict[str, Any] = {"tillgate_is_test": True} if orders.is_test(ours) else {}
        if ours and ours.held and not ours.is_paid:
            part["tillgate_has_paid_nothing"] = True
        if paid_by := orders.paid_by(ours):
            part["tillgate_paid_with"] = paid_by.paid_with
        if refunded := orders.refunded_text(ours):
            part["tillgate_refunded"] = refunded
        if not (ours and ours.is_paid) and (pages := orders.needless_pages(self.object, ours)):
            part["tillgate_open_pages"] = pages
        if orders.waits_for_payment(self.object, ours):
            is_free = orders.is_free(self.object)
            may_be_cancelled = orders.may_be_cancelled(self.object, ours)
            part |= {
                "tillgate_is_free": is_free,
                "tillgate_pay_url": None if is_free else shop.pay_path(PLUGIN, number),
                "tillgate_kept_until": orders.kept_until(ours),
                "tillgate_unpaid_detail": orders.unpaid_detail(ours),
                "tillgate_awaited": ours.awaited if ours else None,
                "tillgate_change_url": orders.change_url(self.object) if may_be_cancelled else None,
            }
        return part

    def _own_template_names(self) -> list[str]:
        # a mixin of Oscar's view
        names: list[str] = super().get_template_names()  # type: ignore[misc]
        return names
