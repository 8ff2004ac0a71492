"""The rows: the Saleors that have installed the App, and their transactions. Tillgate's own rows
record the money.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from tillgate.shop import ExactField, MoneyField, OneDatabase
from tillgate_saleor.conf import origin_of

LONGEST_ID = 100
"""The longest identifier of Saleor's: with the installation's number before it, it must fit into
the key of one of Tillgate's orders.
"""

_PERMISSIONS = ("view",)


class Installation(models.Model):
    """A Saleor that has installed the App. One row for each address, however often it is
    installed.
    """

    objects: ClassVar[OneDatabase[Installation]] = OneDatabase()

    api_url = ExactField(_("address of its API"), max_length=255, unique=True)
    app_id = models.CharField(_("the App's id there"), max_length=128)
    token = models.TextField(blank=True)
    """Encrypted; empty once uninstalled."""
    keys = models.JSONField(default=dict)
    """The JSON Web Key Set of the Saleor as it was last fetched."""
    keys_fetched_at = models.DateTimeField(null=True, blank=True)
    version = models.CharField(max_length=32, blank=True, default="", db_default="")
    """Its version by its newest webhook; empty before the first."""
    installed_at = models.DateTimeField(_("installed"))
    uninstalled_at = models.DateTimeField(_("uninstalled"), null=True, blank=True)

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("installation")
        verbose_name_plural = _("installations")

    def __str__(self) -> str:
        return str(self.api_url)

    @property
    def origin(self) -> str:
        """The Saleor's origin."""
        return origin_of(self.api_url) or ""


class Purchase(models.Model):
    """A checkout or an order of a Saleor, or one part of it, which its transactions pay. To
    Tillgate it is an order.
    """

    objects: ClassVar[OneDatabase[Purchase]] = OneDatabase()

    installation = models.ForeignKey(Installation, models.PROTECT, related_name="purchases")
    source = ExactField(max_length=LONGEST_ID)
    """The identifier of the checkout or order."""
    part = models.PositiveIntegerField(default=0)
    """Above zero if Saleor requested more money after an earlier part was paid."""
    number = models.CharField(max_length=32)
    """Its name for people."""
    channel = models.CharField(max_length=255)
    amount = MoneyField()
    """The amount that Saleor last asked for it."""
    costs = MoneyField(null=True, blank=True)
    """Its total without the money that other Apps hold for it. Null for one part of several, and if
    Saleor does not send it.
    """
    currency = models.CharField(max_length=3)
    paid_reference = models.CharField(max_length=32, blank=True)
    given_up_at = models.DateTimeField(null=True, blank=True)
    """The time of the report that it is unpaid."""

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("purchase")
        verbose_name_plural = _("purchases")
        constraints = [
            models.UniqueConstraint(
                fields=["installation", "source", "part"],
                name="tillgate_saleor_purchase_part",
            ),
        ]
        indexes = [
            models.Index(fields=["installation", "channel"], name="tillgate_saleor_by_channel"),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def key(self) -> str:
        """The key of its order at Tillgate."""
        return f"{self.installation_id}:{self.source}" + (f":{self.part}" if self.part else "")


class Transaction(models.Model):
    """A transaction of a Saleor: one attempt to pay, which has one payment of Tillgate at most."""

    objects: ClassVar[OneDatabase[Transaction]] = OneDatabase()

    installation = models.ForeignKey(Installation, models.PROTECT, related_name="transactions")
    transaction_id = ExactField(max_length=LONGEST_ID)
    purchase = models.ForeignKey(Purchase, models.PROTECT, related_name="transactions")
    idempotency_key = models.CharField(max_length=512)
    method = models.CharField(max_length=32)
    amount = MoneyField()
    return_url = models.TextField(blank=True)
    payment = models.ForeignKey(
        "tillgate.Payment",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    """Null until the payment starts. Two transactions for the same purchase share one payment, and
    the later one gets its reports.
    """
    canceled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("transaction")
        verbose_name_plural = _("transactions")
        constraints = [
            models.UniqueConstraint(
                fields=["installation", "transaction_id"],
                name="tillgate_saleor_transaction_id",
            ),
        ]

    def __str__(self) -> str:
        return str(self.transaction_id)


class AskedRefund(models.Model):
    """A refund that Saleor requested. A repeated request has the same row, and so the same
    refund.
    """

    objects: ClassVar[OneDatabase[AskedRefund]] = OneDatabase()

    transaction = models.ForeignKey(Transaction, models.PROTECT, related_name="asked_refunds")
    digest = models.CharField(max_length=64)
    """The digest of the request's body, which contains the time of issue in microseconds."""
    refund = models.OneToOneField("tillgate.Refund", models.PROTECT, related_name="+")
    asked_at = models.DateTimeField()

    class Meta:
        default_permissions = _PERMISSIONS
        verbose_name = _("refund that Saleor asked for")
        verbose_name_plural = _("refunds that Saleor asked for")
        constraints = [
            models.UniqueConstraint(
                fields=["transaction", "digest"],
                name="tillgate_saleor_asked_refund",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.transaction_id}/{self.refund_id}"
