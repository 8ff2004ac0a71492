"""The mixin on top of Oscar's dispatcher of "back in stock" mail. See `tillgate_oscar.classes`."""

from __future__ import annotations

from typing import Any

from django.db import router, transaction


class AlertsDispatcherMixin:
    """Sends "back in stock" mail after the transaction that releases the stock, and never within it
    (I12).

    Oscar mails whenever a stock record changes. Within an outbox event, a mail server that refuses
    one address would roll back the whole event.
    """

    def send_product_alert_email_for_user(
        self,
        product: Any,
        *arguments: Any,
        **options: Any,
    ) -> None:
        """Send the mail when the running transaction is committed, or now if there is none. Django
        logs failures after the commit.
        """
        # a mixin of Oscar's class
        send = super().send_product_alert_email_for_user  # type: ignore[misc]
        connection = transaction.get_connection(router.db_for_write(type(product)))
        if connection.in_atomic_block:
            connection.on_commit(lambda: send(product, *arguments, **options), robust=True)
        else:
            send(product, *arguments, **options)
