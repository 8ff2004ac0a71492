"""The rows. They know only `lifecycle`; the rooms `orders`, `payments`, `refunds`, `reviews`,
`outbox` and `worker` change them.

No brand of a framework or payment method is in a stored value but the plugin's name and
the payment method's word of the interface.
"""

from __future__ import annotations

import secrets
import uuid
from decimal import Decimal
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from tillgate import money
from tillgate.account import Account
from tillgate.django.review_text import message_of
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    Claim,
    OrderStatus,
    OutboxStatus,
    PaymentStatus,
    RefundStatus,
    ReviewStatus,
    claim_of,
)
from tillgate.money import Money
from tillgate.wire.details import PaymentDetails
from tillgate.wire.references import new_reference

if apps.get_containing_app_config(__name__) is None:
    # Without the app all seems to work: the pages answer, and there are no tables, checks and
    # commands.
    raise ImproperlyConfigured(
        "Tillgate needs its Django app: put 'tillgate.django' into INSTALLED_APPS (it is missing).",
    )

MOST_DIGITS = 15
"""Of an amount, with its decimals: every database keeps so many exactly, SQLite included."""

LONGEST_IDEMPOTENCY_KEY = 255


_PERMISSIONS = ("view",)
"""Only these rooms add, change or delete rows. The actions of staff have permissions of their
own.
"""


_CENTS = Decimal("0.01")


def new_key() -> str:
    """Return an unguessable key for an address: 192 random bits."""
    return secrets.token_urlsafe(24)


def new_refund_id() -> str:
    """Return a fresh name of a refund: two shops on one merchant account never choose the same."""
    return new_reference("R")


def _choices(statuses: type[Any]) -> list[tuple[str, str]]:
    return [(status.value, status.value) for status in statuses]


_Row_co = TypeVar("_Row_co", bound=models.Model, covariant=True)


class OneDatabase(models.Manager[_Row_co]):
    """Reads and writes on the database that the project's router names for an order's writes: a
    replica may lag behind (I1).
    """

    def get_queryset(self) -> models.QuerySet[_Row_co]:
        """Return rows of that database."""
        return super().get_queryset().using(database())


def database() -> str:
    """Return the alias of the database that holds Tillgate's rows."""
    return router.db_for_write(Order)


# generic only for the type checker
class MoneyField(models.DecimalField):  # type: ignore[type-arg]
    """An amount of the payment's currency, with up to three decimals."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("max_digits", MOST_DIGITS)
        options.setdefault("decimal_places", money.MOST_DECIMALS)
        super().__init__(*arguments, **options)

    def from_db_value(
        self,
        value: Decimal | None,
        expression: object,
        connection: object,
    ) -> Decimal | None:
        """Return a stored amount with two decimals where the third is zero: the currency's own
        decimals count when it is shown.
        """
        if value is None:
            return None
        cents = value.quantize(_CENTS, context=money.EXACT)
        return cents if cents == value else value


class ExactField(models.CharField):  # type: ignore[type-arg]  # generic only for the type checker
    """Text that is equal only to itself. MariaDB and MySQL would hold "a", "A" and "a " to be the
    same, and so one shop's two orders.
    """

    def db_parameters(self, connection: Any) -> Any:
        """Return the column's parameters, with a collation that compares bytes where the database
        would not.
        """
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = (
                "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
            )
        return parameters


class Order(models.Model):
    """An order of a shop. Its row is the lock that serialises everything about its payments."""

    objects: ClassVar[OneDatabase[Order]] = OneDatabase()

    plugin = models.CharField(_("plugin"), max_length=64)
    key = ExactField(_("key"), max_length=128)
    created_at = models.DateTimeField(_("begun"))
    closed_at = models.DateTimeField(null=True, blank=True)
    paid_by = models.OneToOneField(
        "Payment",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    """The one payment that was delivered to the shop as paid (I4)."""
    unpaid_check_at = models.DateTimeField(null=True, blank=True, db_index=True)
    """When the worker checks whether the order is unpaid."""
    tried_since = models.DateTimeField(null=True, blank=True)
    """When the first payment began, since the shop last heard that the order is unpaid, or refunded
    money that had not paid it. Later by the time in which money was under way.
    """
    under_way_since = models.DateTimeField(null=True, blank=True)
    """Since when the money of an open payment is under way; that time is no time to pay."""
    purge_check_at = models.DateTimeField(null=True, blank=True, db_index=True)
    """When the worker next checks whether the order has details that are older than they are
    kept.
    """
    data = models.JSONField(default=dict, blank=True)
    """The plugin's own."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        constraints = [
            models.UniqueConstraint(fields=["plugin", "key"], name="tillgate_order_plugin_key"),
        ]

    def __str__(self) -> str:
        return f"{self.plugin}:{self.key}"

    @property
    def status(self) -> OrderStatus:
        """Where the order stands."""
        if self.paid_by_id is not None:
            return OrderStatus.PAID
        return OrderStatus.CLOSED if self.closed_at else OrderStatus.OPEN


class Payment(models.Model):
    """One attempt to pay one order with one payment method, pinned to the account that made it."""

    objects: ClassVar[OneDatabase[Payment]] = OneDatabase()

    known_account: Account | None = None
    """The account that made the payment, where a notification's handling has found it already;
    never stored.
    """
    is_in_doubt: bool = False
    """Whether the answer that was just applied settles nothing, or is not in order; never
    stored.
    """

    close_answer: bool | str | None = None
    """The result of closing its page just now, or why that failed; never stored."""

    # Constraints make them unique: `unique` and `db_index` of text make a second index on
    # PostgreSQL, for LIKE, which no query uses.
    order = models.ForeignKey(Order, models.PROTECT, related_name="payments", db_index=False)
    reference = models.CharField(max_length=64)
    notification_key = ExactField(max_length=32, default=new_key)
    return_key = ExactField(max_length=32, default=new_key)

    account = models.CharField(_("account"), max_length=128)
    merchant_no = models.CharField(max_length=64)
    base_url = models.CharField(max_length=255)
    sandbox = models.BooleanField()

    method = models.CharField(max_length=32)
    terminal = models.CharField(max_length=16)
    amount = MoneyField()
    currency = models.CharField(max_length=3)
    description = models.CharField(max_length=255, blank=True)
    data = models.JSONField(default=dict, blank=True)

    status = models.CharField(
        max_length=16,
        choices=_choices(PaymentStatus),
        default=PaymentStatus.CREATED.value,
    )
    status_text = models.CharField(max_length=32, blank=True)
    """The gateway's own word for the status, where its answer brought it."""
    is_processing = models.BooleanField(default=False)
    """Whether the shopper has finished and the money is on its way, for days perhaps."""
    # null, since '' would be a number
    transaction_no = models.CharField(max_length=255, null=True, blank=True)
    hinted_no = models.CharField(max_length=255, null=True, blank=True)
    """The gateway's number by a verified notification, for queries while no answer has brought
    it.
    """
    payment_url = models.TextField(blank=True)
    details = models.JSONField(
        default=dict,
        blank=True,
        db_default=models.Value({}, models.JSONField()),
    )
    """The details for clerks and shoppers in the gateway's newest answer, as `PaymentDetails`
    writes them.
    """

    last4 = models.CharField(max_length=4, blank=True, default="", db_default="")
    """The last four digits of the card that paid, for the search; erased with the details."""
    created_at = models.DateTimeField(_("started"), db_index=True)
    page_closes_at = models.DateTimeField()
    close_wanted_at = models.DateTimeField(null=True, blank=True)
    """The moment after which its page should take no payment; null once the gateway was asked to
    close it.
    """
    page_closed_at = models.DateTimeField(null=True, blank=True)
    """When the gateway closed its page, before its time."""
    expires_at = models.DateTimeField()
    """When the payment page has closed and the grace after it has passed."""
    status_since = models.DateTimeField()
    last_polled_at = models.DateTimeField(null=True, blank=True)
    """When a notification last led to a query. The worker's own polls do not count (I7)."""
    last_returned_at = models.DateTimeField(null=True, blank=True)
    """When the shopper's return, or the page that waits after it, last led to a query. They hold
    up no notification.
    """
    next_poll_at = models.DateTimeField(null=True, blank=True)
    """When it is due; a worker that claims it moves this forward by the lease."""
    notifications = models.PositiveIntegerField(default=0)
    forged_notifications = models.PositiveIntegerField(default=0)
    repeated_notifications = models.PositiveIntegerField(default=0)
    """Those that came when it was paid already and said no more than the one before; they are
    counted here alone, and not kept.
    """
    last_notification = models.CharField(max_length=32, blank=True)
    """A hash of the newest kept notification."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        indexes = [
            models.Index(fields=["account", "next_poll_at"], name="tillgate_payment_due"),
            models.Index(fields=["order", "status"], name="tillgate_payment_of_order"),
            models.Index(fields=["status", "created_at"], name="tillgate_payment_by_status"),
            # For figures. Of `status_since` alone MariaDB would merge it with the primary key in
            # updates of one payment, which then wait for each other in a circle.
            # It holds all that figures add, so that they read no rows.
            models.Index(
                fields=["sandbox", "status_since", "status", "currency", "method", "amount"],
                name="tillgate_payment_figures",
            ),
            models.Index(fields=["amount"], name="tillgate_payment_by_amount"),
            models.Index(fields=["transaction_no"], name="tillgate_payment_by_number"),
            models.Index(fields=["last4"], name="tillgate_payment_by_last4"),
        ]
        constraints = [
            models.UniqueConstraint(fields=[name], name=f"tillgate_payment_{name}")
            for name in ("reference", "notification_key", "return_key")
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def money(self) -> Money:
        """The amount with its currency."""
        return Money(self.amount, self.currency)

    @property
    def known(self) -> PaymentDetails:
        """The details for clerks and shoppers in the gateway's newest answer."""
        return PaymentDetails.read(self.details)

    @property
    def is_open(self) -> bool:
        """Whether it may still be paid in the ordinary course."""
        return self.status in OPEN_PAYMENT_STATUSES

    @property
    def refunded_amount(self) -> Decimal:
        """How much of it went back for certain."""
        return self._refunds_in(RefundStatus.SUCCEEDED)

    @property
    def refunding_amount(self) -> Decimal:
        """How much of it went back, or is accepted to go back."""
        return self._refunds_in(RefundStatus.SUCCEEDED, RefundStatus.PENDING)

    def _refunds_in(self, *statuses: RefundStatus) -> Decimal:
        # Added up here: SQLite adds as floats.
        return money.total(
            self.refunds.filter(status__in=statuses).values_list("amount", flat=True),
        )


class PaymentNumber(models.Model):
    """A further number of a payment at its gateway: staff find the payment with it."""

    objects: ClassVar[OneDatabase[PaymentNumber]] = OneDatabase()

    payment = models.ForeignKey(Payment, models.CASCADE, related_name="numbers")
    number = ExactField(max_length=255, db_index=True)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = "number of a payment"  # no page names it
        verbose_name_plural = "numbers of payments"
        constraints = [
            models.UniqueConstraint(fields=["payment", "number"], name="tillgate_payment_number"),
        ]

    def __str__(self) -> str:
        return str(self.number)


class Refund(models.Model):
    """One request to refund part or all of a payment. `external` ones were made elsewhere and
    entered by a person.
    """

    objects: ClassVar[OneDatabase[Refund]] = OneDatabase()

    payment = models.ForeignKey(Payment, models.PROTECT, related_name="refunds")
    notification_key = ExactField(max_length=32, default=new_key)
    refund_id = models.CharField(max_length=64, default=new_refund_id)
    """Our name of the refund at the gateway: the same however often it is sent or queried."""
    # null, since '' would be a number
    refund_no = models.CharField(max_length=255, null=True, blank=True)
    """The gateway's number of the refund."""
    amount = MoneyField()
    status = models.CharField(
        max_length=16,
        choices=_choices(RefundStatus),
        default=RefundStatus.QUEUED.value,
    )
    external = models.BooleanField(default=False)
    requested_by = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=255, blank=True)
    answer = models.CharField(max_length=255, blank=True)
    data = models.JSONField(default=dict, blank=True)
    # null, since several refunds of a payment may have no key
    idempotency_key = ExactField(max_length=LONGEST_IDEMPOTENCY_KEY, null=True, blank=True)
    """The caller's name for this wish: a repeated key returns this refund."""
    created_at = models.DateTimeField(db_index=True)
    status_since = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    """When a queued one is sent, or a sending one counts as lost."""
    notifications = models.PositiveIntegerField(default=0)
    confirmed = models.BooleanField(default=False)
    """Whether a notification on its own address has said that it was done (unspecified 14)."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("refund")
        verbose_name_plural = _("refunds")
        constraints = [
            models.UniqueConstraint(
                fields=["notification_key"],
                name="tillgate_refund_notification_key",
            ),
            models.UniqueConstraint(fields=["refund_id"], name="tillgate_refund_refund_id"),
            models.UniqueConstraint(
                fields=["payment", "idempotency_key"],
                name="tillgate_refund_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.payment_id}/{self.pk}"

    @property
    def money(self) -> Money:
        """The amount with the payment's currency."""
        return Money(self.amount, self.payment.currency)


class NotificationKind(models.TextChoices):
    """Which door a notification came through."""

    PAYMENT = "payment", _("payment notification")
    REFUND = "refund", _("refund notification")
    RETURN = "return", _("shopper's return")


class Notification(models.Model):
    """Something that arrived from outside, kept as evidence; the newest few per payment.

    Without a payment it came to the address of an account: it is forged, or waits for the worker.
    """

    objects: ClassVar[OneDatabase[Notification]] = OneDatabase()

    payment = models.ForeignKey(
        Payment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="kept_notifications",
    )
    refund = models.ForeignKey(
        Refund,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="kept_notifications",
    )
    kind = models.CharField(max_length=16, choices=NotificationKind.choices)
    slot = models.PositiveSmallIntegerField()
    received_at = models.DateTimeField()
    method = models.CharField(max_length=8)
    signature = models.CharField(max_length=16)
    evidence = models.JSONField(default=dict)
    account = models.CharField(_("account"), max_length=128, blank=True, db_default="")
    """The account, where no payment is known."""
    unmatched = ExactField(max_length=255, null=True, blank=True)
    """The reference or the gateway's number that names a payment that is not known."""
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    """When the worker asks the gateway which payment an unmatched one is about."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        indexes = [models.Index(fields=["payment", "slot"], name="tillgate_notification_slot")]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "unmatched"],
                name="tillgate_notification_unmatched",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.received_at:%Y-%m-%d %H:%M:%S}"


class TimelineEntry(models.Model):
    """One change: its time, its actor and its cause. Append-only (I10)."""

    objects: ClassVar[OneDatabase[TimelineEntry]] = OneDatabase()

    order = models.ForeignKey(Order, models.CASCADE, related_name="timeline")
    payment = models.ForeignKey(
        Payment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="timeline",
    )
    refund = models.ForeignKey(
        Refund,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="timeline",
    )
    at = models.DateTimeField()
    event = models.CharField(max_length=64)
    actor = models.CharField(max_length=160)
    message = models.TextField()
    evidence = models.JSONField(default=dict)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("timeline entry")
        verbose_name_plural = _("timeline")
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.event}"


class Review(models.Model):
    """A case that staff must decide: a reason, the compared facts and how it was closed.
    `tillgate.lifecycle.review` has the policies.
    """

    objects: ClassVar[OneDatabase[Review]] = OneDatabase()

    order = models.ForeignKey(Order, models.CASCADE, null=True, blank=True, related_name="reviews")
    payment = models.ForeignKey(
        Payment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="reviews",
    )
    refund = models.ForeignKey(
        Refund,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="reviews",
    )
    outbox_event = models.ForeignKey(
        "OutboxEvent",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="reviews",
    )
    account = models.CharField(_("account"), max_length=128, blank=True)
    reason = models.CharField(max_length=64, db_index=True)
    status = models.CharField(
        max_length=16,
        choices=_choices(ReviewStatus),
        default=ReviewStatus.OPEN.value,
    )
    reported_paid = models.BooleanField(default=False)
    """Whether the gateway says "paid", though a check failed."""
    facts = models.JSONField(default=dict)
    """The compared values. The message is rendered from them."""
    version = models.CharField(max_length=16)
    """A hash of reason, facts and `reported_paid`: an action on an older version is refused."""
    evidence = models.JSONField(default=dict)
    open_key = models.CharField(max_length=190, unique=True, null=True, blank=True)
    """The same case is open only once; null once closed, since it may come again."""
    opened_at = models.DateTimeField(db_index=True)
    recorded = models.JSONField(default=list)
    """The versions that stand in the timeline."""
    mailed_at = models.DateTimeField(null=True, blank=True)
    mailed = models.JSONField(default=list)
    """The versions that were mailed."""
    alerted_at = models.DateTimeField(null=True, blank=True)
    """When this version went to the owner's webhook."""
    taken_by = models.CharField(max_length=150, blank=True, default="", db_default="")
    """The user name of the clerk in charge of it."""
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=150, blank=True)
    resolution = models.CharField(max_length=255, blank=True)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("review")
        verbose_name_plural = _("needs review")
        permissions = [
            ("resolve_review", _("Can resolve what needs review")),
            ("refund_payment", _("Can refund payments")),
        ]

    def __str__(self) -> str:
        return self.message

    @property
    def message(self) -> str:
        """The case in words, in the active language. For people only."""
        return message_of(self.reason, self.facts, reported_paid=self.reported_paid)

    @property
    def money(self) -> Money | None:
        """The amount of its refund, or of its payment; None for a review about neither."""
        return self.refund.money if self.refund else self.payment.money if self.payment else None

    @property
    def claim(self) -> Claim:
        """The gateway's claim about the payment, by these facts."""
        return claim_of(self.reason, self.facts, reported_paid=self.reported_paid)


class OutboxEventKind(models.TextChoices):
    """The kinds of events. A plugin carries the last over the network; the others change only the
    database.
    """

    PAYMENT_PAID = "payment-paid", _("payment is paid")
    ORDER_UNPAID = "order-unpaid", _("order is unpaid")
    REFUND_CHANGED = "refund-changed", _("refund changed")
    REVIEW_OPENED = "review-opened", _("needs review")
    REMOTE = "remote", _("over the network")


class OutboxEvent(models.Model):
    """Telling the shop about a change: written with the change, carried out after it, in order per
    order (I3).
    """

    objects: ClassVar[OneDatabase[OutboxEvent]] = OneDatabase()

    order = models.ForeignKey(
        Order,
        models.CASCADE,
        related_name="outbox_events",
        db_index=False,
    )
    payment = models.ForeignKey(
        Payment,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="outbox_events",
    )
    refund = models.ForeignKey(
        Refund,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="outbox_events",
    )
    review = models.ForeignKey(
        Review,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="outbox_events",
    )
    kind = models.CharField(max_length=32, choices=OutboxEventKind.choices)
    name = models.CharField(max_length=64, blank=True)
    data = models.JSONField(default=dict, blank=True)
    event_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    created_at = models.DateTimeField()
    """When it joins the queue of its order: a delayed event later than its row, so it delays no
    other until then.
    """
    done_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)
    """When it is tried next; null once done. A worker that claims it moves this forward by the
    lease.
    """
    begun_at = models.DateTimeField(null=True, blank=True)
    """When the delivery that is under way began: a claim that finds it knows that the process was
    killed, or hung.
    """
    attempts = models.PositiveIntegerField(default=0)
    fault = models.TextField(blank=True)
    outcome = models.CharField(max_length=32, blank=True)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("outbox event")
        verbose_name_plural = _("outbox events")
        indexes = [models.Index(fields=["order", "done_at"], name="tillgate_outbox_event_of_order")]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"

    @property
    def status(self) -> OutboxStatus:
        """Where the event stands."""
        if self.done_at is not None:
            return (
                OutboxStatus.ABANDONED
                if self.outcome == OutboxStatus.ABANDONED
                else OutboxStatus.DELIVERED
            )
        return OutboxStatus.FAILING if self.attempts else OutboxStatus.WAITING


class Lane(models.Model):
    """A lane that has rested or failed: an account, by its alias, or one of the shop's own, by a
    name with a colon. The pages have lanes too, in which they create payments or send queries.
    """

    objects: ClassVar[OneDatabase[Lane]] = OneDatabase()

    name = ExactField(max_length=128, primary_key=True)
    rests_until = models.DateTimeField(null=True, blank=True)
    """A lane has no turn before this."""
    silent_since = models.DateTimeField(null=True, blank=True)
    """Since when an account's gateway gives no usable answer."""
    answered_at = models.DateTimeField(null=True, blank=True)
    """When an account's gateway last answered a query of the worker, or a test of the
    connection.
    """
    failures = models.JSONField(null=True, blank=True)
    """How many rows of each chore failed in its last turn."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("lane of the worker")
        verbose_name_plural = _("lanes of the worker")

    def __str__(self) -> str:
        return str(self.name)


class Heartbeat(models.Model):
    """A last sign of life: of the worker, or of the database's server."""

    objects: ClassVar[OneDatabase[Heartbeat]] = OneDatabase()

    name = models.CharField(max_length=64, primary_key=True)
    at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("heartbeat")
        verbose_name_plural = _("heartbeats")

    def __str__(self) -> str:
        return f"{self.name} {self.at:%Y-%m-%d %H:%M:%S}"


NOTHING = Decimal("0.00")
"""No money."""
