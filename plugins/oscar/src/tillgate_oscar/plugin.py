"""The hooks: they describe an Oscar order to Tillgate, and apply shop events to it."""

from __future__ import annotations

from tillgate.hooks import hookimpl
from tillgate_oscar import examples, mail, occasions, orders, payments, refunds

tillgate_describe_order = hookimpl(orders.describe)
tillgate_find_orders = hookimpl(orders.search)
tillgate_customers = hookimpl(orders.customers)
tillgate_payment_paid = hookimpl(payments.paid)
tillgate_order_unpaid = hookimpl(payments.unpaid)
tillgate_reopen_order = hookimpl(payments.reopen)
tillgate_refund_changed = hookimpl(refunds.changed)
tillgate_review_opened = hookimpl(mail.tell_of_second_payment)
tillgate_return_url = hookimpl(orders.return_url)
tillgate_deliver = hookimpl(mail.deliver)
tillgate_example_mails = hookimpl(examples.example_mails)
tillgate_event = hookimpl(occasions.follow)
