"""Payments: the list, a payment's page with its timeline, refunds, and "poll now"."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import admin, messages
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from tillgate import money
from tillgate.django import actions, dates, words
from tillgate.django.amounts import money_text, read_typed, typed_text
from tillgate.django.masking import Mask
from tillgate.django.models import NOTHING, Payment, Refund, Review
from tillgate.django.orders.customers import customers_of
from tillgate.django.pages.admin.base import NewestFilter, ValueFilter, need, staff_detail
from tillgate.django.pages.admin.figures_pages import FiguresAdmin
from tillgate.django.pages.clerks import clerk_lines
from tillgate.django.pages.forms import RefundForm
from tillgate.django.pages.searching import Found
from tillgate.django.pages.showing import (
    MAY_REFUND,
    MAY_RESOLVE,
    badge,
    just_refunded,
    newest,
    refund_outcome,
    row_id,
    staff_of,
    timeline_of,
)
from tillgate.django.pages.summaries import paid_with, summary_of
from tillgate.django.payments.notes import add_note
from tillgate.django.refunds import queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.limits import refundable
from tillgate.errors import TillgateError
from tillgate.lifecycle import PaymentStatus, RefundStatus, ReviewAction, ReviewReason
from tillgate.money import Money


class _StatusFilter(ValueFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(status, word.label) for status, word in words.PAYMENT_STATUSES.items()]


class _MethodFilter(NewestFilter):
    title = _("payment method")
    parameter_name = "method"

    def label(self, value: str) -> str:
        return words.method_name(value)


class _AccountFilter(NewestFilter):
    title = _("account")
    parameter_name = "account"


@admin.register(Payment)
class PaymentAdmin(FiguresAdmin):
    """Payments, the newest first."""

    list_display = (
        "shown_reference",
        "shown_created",
        "shown_customer",
        "shown_amount",
        "shown_paid_with",
        "shown_status",
        "shown_order",
        "shown_account",
    )
    list_filter = (
        _StatusFilter,
        _MethodFilter,
        _AccountFilter,
        "created_at",
    )
    search_fields = ("reference",)
    ordering = ("-id",)
    sortable_by = ("shown_amount", "shown_created")
    page_template = "tillgate/admin/payment.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Payment]:
        """Return payments with their orders and refunds, in two statements for any number of
        payments.
        """
        payments: QuerySet[Payment] = super().get_queryset(request)
        went_back = Prefetch(
            "refunds",
            Refund.objects.filter(status=RefundStatus.SUCCEEDED),
            to_attr="went_back",
        )
        return payments.select_related("order").prefetch_related(went_back)

    def changelist_view(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the payments with what is not in their rows, read once for all on the page: their
        shoppers, whom each shop is asked for, and which of them need review.
        """
        response = super().changelist_view(request, extra_context)
        found = (getattr(response, "context_data", None) or {}).get("cl")
        if found is not None:
            rows = list(found.result_list)
            found.result_list = rows
            customers = customers_of((one.order.plugin, one.order.key) for one in rows)
            waiting = Review.objects.filter(payment__in=rows, resolved_at__isnull=True)
            reviewed = set(waiting.values_list("payment", flat=True))
            for one in rows:
                vars(one)["waits_for_staff"] = one.pk in reviewed
                vars(one)["customer"] = customers.get((one.order.plugin, one.order.key))
        return response

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse to filter by hidden columns: a user could guess their letters one by one."""
        is_hidden = lookup.split("__", maxsplit=1)[0] in (
            "notification_key",
            "return_key",
            "payment_url",
        )
        return not is_hidden and super().lookup_allowed(lookup, value, request)

    def condition_of(self, found: Found) -> Q:
        """Return the condition for the payments of a search."""
        return found.of_payments

    @admin.display(description=_("reference"), ordering="reference")
    def shown_reference(self, payment: Any) -> SafeString | str:
        """Return the reference, with a bell when something about the payment needs review."""
        if not payment.waits_for_staff:
            return str(payment.reference)
        return format_html(
            "{} {}",
            payment.reference,
            badge(words.Word(_("needs review"), "bell", "ask")),
        )

    @admin.display(description=_("status"))
    def shown_status(self, payment: Any) -> SafeString:
        """Return the status with its icon, and whether the money was refunded."""
        status = badge(words.PAYMENT_STATUSES[payment.status])
        if not payment.went_back:
            return status
        left = money.left_of(payment.amount, [refund.amount for refund in payment.went_back])
        return format_html(
            "{} {}",
            status,
            badge(words.Word(_("partly refunded") if left > 0 else _("refunded"), "minus", "bad")),
        )

    @admin.display(description=_("amount"), ordering="amount")
    def shown_amount(self, payment: Payment) -> str:
        """Return the amount."""
        return money_text(payment.amount, payment.currency)

    @admin.display(description=_("paid with"))
    def shown_paid_with(self, payment: Payment) -> str:
        """Return what paid, or the chosen method."""
        return paid_with(payment)

    @admin.display(description=_("customer"))
    def shown_customer(self, payment: Payment) -> str:
        """Return the shopper's name, or the e-mail address, where the shop knows it."""
        known = vars(payment).get("customer")
        return (known.name or known.email) if known else ""

    @admin.display(description=_("order"))
    def shown_order(self, payment: Payment) -> SafeString:
        """Return the shop's key, which leads to the order's page."""
        return format_html('<a href="{}">{}</a>', self.page_url(payment.order), payment.order.key)

    @admin.display(description=_("started"), ordering="created_at")
    def shown_created(self, payment: Payment) -> str:
        """Return the time of its start."""
        return date_format(dates.local(payment.created_at), "SHORT_DATETIME_FORMAT")

    @admin.display(description=_("account"))
    def shown_account(self, payment: Payment) -> str:
        """Return the account, marked if it is a sandbox."""
        return (
            gettext("%(account)s (sandbox)") % {"account": payment.account}
            if payment.sandbox
            else payment.account
        )

    def get_urls(self) -> list[URLPattern]:
        """Add the actions."""
        actions = {
            "refund": self.refund_view,
            "record-external-refund": self.enter_view,
            "query": self.query_view,
            "note": self.note_view,
        }
        return [
            *(self.action_url(suffix, view) for suffix, view in actions.items()),
            *super().get_urls(),
        ]

    def page_context(self, request: HttpRequest, row: Payment) -> dict[str, Any]:
        """Return a payment and everything that belongs to it."""
        refunds = list(row.refunds.order_by("id"))
        mask = Mask([row], refunds)
        entries = row.order.timeline.filter(Q(payment=row) | Q(payment__isnull=True))
        events = newest(row.outbox_events.all())
        left = refundable(row)
        refunded_amount = money.total(
            refund.amount for refund in refunds if refund.status == RefundStatus.SUCCEEDED
        )
        return {
            "payment": row,
            "summary": summary_of(row),
            "lines": clerk_lines(row.order, row),
            "note_url": self.action_address("note", row),
            "order_url": self.page_url(row.order),
            "status": words.PAYMENT_STATUSES[row.status],
            "method": words.method_name(row.method),
            "timeline": timeline_of(entries, mask),
            "refunds": [
                (refund, words.REFUND_STATUSES[refund.status], mask.text(refund.answer))
                for refund in refunds
            ],
            "left": left,
            "refunded_amount": refunded_amount,
            "refund_form": RefundForm(Money(left, row.currency), initial={"amount": left})
            if left
            else None,
            "refund_url": self.action_address("refund", row),
            "may_be_entered": row.status == PaymentStatus.PAID and refunded_amount < row.amount,
            "enter_url": self.action_address("record-external-refund", row),
            "seen": refunds[-1].pk if refunds else 0,
            "read": next(
                (
                    one.version
                    for one in row.reviews.filter(
                        reason=ReviewReason.CHANGED_AFTER_PAID,
                        resolved_at=None,
                    )
                ),
                "",
            ),
            "query_url": self.action_address("query", row),
            "event_rows": [(one, mask.text(one.fault)) for one in events],
            "events": events,
            "notifications": [
                (one, mask.evidence(one.evidence))
                for one in row.kept_notifications.order_by("-received_at", "-id")
            ],
            "reviews": [
                (one, words.reason(one.reason), mask.text(one.message), self.page_url(one))
                for one in row.reviews.order_by("id")
            ],
        }

    def refund_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation of a refund, and run it after the answer."""
        payment = self.find(request, object_id)
        need(request, MAY_REFUND)
        return (self._refund if request.method == "POST" else self._ask_to_refund)(request, payment)

    def _ask_to_refund(self, request: HttpRequest, payment: Payment) -> HttpResponse:
        """Show the refund before it runs. The form carries an idempotency key, and the refunds that
        the page showed.
        """
        left = refundable(payment)
        if not left:
            messages.error(request, gettext("Nothing of this payment can be refunded."))
            return HttpResponseRedirect(self.page_url(payment))
        review = self._review(payment, request.GET.get("review"))
        if review and review.resolved_at:
            # it names the actor of the earlier change
            return HttpResponseRedirect(self.page_url(review))
        form = self._refund_form(request, Money(left, payment.currency), review)
        refunds = list(payment.refunds.order_by("id"))
        amount = form.cleaned_data["amount"] if form.is_valid() else None
        context = {
            "payment": payment,
            "method": words.method_name(payment.method),
            "form": form,
            "is_sure": amount is not None,
            "left": left,
            "left_after": money.left_of(left, [amount or NOTHING]),
            "just_refunded": just_refunded(refunds, payment.currency, amount) if amount else "",
            "review": review,
            "review_message": Mask([payment]).text(review.message) if review else "",
            "seen": refunds[-1].pk if refunds else 0,
            "idempotency_key": secrets.token_urlsafe(12),
            "page_url": self.page_url(review or payment),
        }
        return self.show(request, "tillgate/admin/refund.html", gettext("Refund"), context)

    def _refund_form(self, request: HttpRequest, left: Money, review: Review | None) -> RefundForm:
        given = {
            "amount": request.GET.get("amount", typed_text(left.amount, left.currency)),
            "reason": request.GET.get("reason", ""),
        }
        # The order stays paid: a full refund would be too much, and the message names the
        # difference.
        is_open = review and review.reason == ReviewReason.OVERPAID and "amount" not in request.GET
        form = RefundForm(left) if is_open else RefundForm(left, given)
        if review:
            del form.fields["reason"]  # the review is the reason
        return form

    def _review(self, payment: Payment, given: str | None) -> Review | None:
        # another user may have resolved it already
        return payment.reviews.filter(pk=row_id(given)).first()

    def _refund(self, request: HttpRequest, payment: Payment) -> HttpResponse:
        mask, posted = Mask([payment]), request.POST
        review = self._review(payment, posted.get("review"))
        if review:
            need(request, MAY_RESOLVE)
        refund, repeated, detail = None, None, ""
        try:
            amount = posted.get("amount", "")
            repeated = queueing.find_repeated(payment, amount, posted.get("idempotency_key"))
            if not repeated and not posted.get("again"):
                # a newer refund than the page showed refuses this one with its own words
                shown = payment.refunds.filter(pk__lte=row_id(posted.get("seen")))
                exact = money.amount(amount, payment.currency)
                detail = just_refunded(shown, payment.currency, exact)
            if not detail:
                refund, detail = self._send(request, payment, review)
        except TillgateError as error:
            detail = staff_detail(error)
        if refund:
            level, said = refund_outcome(refund, mask, repeated=repeated is not None)
            messages.add_message(request, level, said)
        else:  # it cannot be, or a colleague has resolved the review in another way
            said = gettext("Nothing was refunded: %(detail)s.")
            messages.error(request, said % {"detail": mask.text(detail).rstrip(".")})
        return HttpResponseRedirect(self.page_url(review or payment))

    def _send(
        self,
        request: HttpRequest,
        payment: Payment,
        review: Review | None,
    ) -> tuple[Refund | None, str]:
        """Return the refund, or None and the reason where a colleague had resolved the review."""
        posted = request.POST
        asked: dict[str, Any] = {
            "staff": staff_of(request),
            "amount": posted.get("amount", ""),
            "idempotency_key": posted.get("idempotency_key"),
            "newest_refund": row_id(posted.get("seen")),
        }
        if review is None:
            return queueing.refund(payment.pk, reason=posted.get("reason", ""), **asked), ""
        done = actions.take_action(review.pk, ReviewAction.REFUND, **asked)
        return done.refund, done.message

    def enter_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record an external refund, made in the gateway's own pages: no answer of the gateway
        reports it.
        """
        payment = self.find(request, object_id)
        need(request, MAY_REFUND, MAY_RESOLVE)
        if request.method != "POST":
            return self.ask_to_press_again(request, self.page_url(payment))
        amount, seen, read = (
            request.POST.get("amount", ""),
            row_id(request.POST.get("seen")),
            request.POST.get("read"),
        )
        try:
            entered = record_external_refund(
                payment.pk,
                read_typed(amount, payment.currency),
                staff=staff_of(request),
                newest_refund=seen,
                expected_version=read,
            )
        except TillgateError as error:
            return self.refuse(request, error, self.page_url(payment), Mask([payment]))
        said = gettext("Recorded: an external refund of %(amount)s.")
        messages.success(request, said % {"amount": money_text(entered.amount, payment.currency)})
        return HttpResponseRedirect(self.page_url(payment))

    def note_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Add a note for colleagues."""
        payment = self.find(request, object_id)
        need(request, MAY_RESOLVE)
        if request.method != "POST":
            return self.ask_to_press_again(request, self.page_url(payment))
        try:
            add_note(payment, request.POST.get("note", ""), staff=staff_of(request))
        except TillgateError as error:
            return self.refuse(request, error, self.page_url(payment), Mask([payment]))
        messages.success(request, gettext("The note was added."))
        return HttpResponseRedirect(self.page_url(payment))

    def query_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Poll a payment now. The permission to view it is enough: a shopper's return does the
        same.
        """
        payment = self.find(request, object_id)
        if request.method != "POST":
            return self.ask_to_press_again(request, self.page_url(payment))
        try:
            done = actions.poll_now(payment, staff_of(request))
        except TillgateError as error:  # another process has the order
            return self.refuse(request, error, self.page_url(payment), Mask([payment]))
        said = gettext("Polled the gateway: %(answer)s.") % {
            "answer": Mask([payment]).text(done.message),
        }
        messages.add_message(request, messages.SUCCESS if done.resolved else messages.WARNING, said)
        return HttpResponseRedirect(self.page_url(payment))
