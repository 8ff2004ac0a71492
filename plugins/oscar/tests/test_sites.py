"""Several sites on one database: the mails and links of an order lead to its own site, in the
shopper's language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib.sites.models import Site
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import translation
from oscar.core.loading import get_model

from tests import urls
from tests.shopper import Shopper
from tests.test_mail import bodies
from tillgate.django.models import Payment
from tillgate.django.orders import values
from tillgate.django.payments import reconciling
from tillgate.django.refunds import queueing
from tillgate.testing.world import World
from tillgate_oscar.orders import find, return_url

Make = Callable[..., Any]
OTHER = "tea.example"


def links(body: str) -> list[str]:
    return [
        word
        for word in body.replace('"', " ").split()
        if "/payments/pay/" in word or "/order-status/" in word
    ]


@pytest.fixture(params=[1, None], ids=["SITE_ID of another site", "sites by host"])
def payment(request: pytest.FixtureRequest, world: World, product: Make, settings: Any) -> Payment:
    """Return a payment of an order at the second of two sites; the worker is the first one's, or
    nobody's.
    """
    Site.objects.update_or_create(pk=1, defaults={"domain": "127.0.0.1:2", "name": "First shop"})
    other = Site.objects.create(domain=OTHER, name="Tea & more")
    settings.SITE_ID = other.pk
    shopper = Shopper(Client(SERVER_NAME=OTHER))
    shopper.get(shopper.buys(product())["Location"])
    world.client.cookies.update(shopper.client.cookies)  # only this browser may change the order
    settings.SITE_ID = request.param
    return Payment.objects.get()


def test_mails_carry_orders_own_site(
    world: World,
    payment: Payment,
) -> None:
    """Every mail has the name and the address of that site."""
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    world.time.advance(minutes=30)
    world.run_worker()
    first, second = (
        world.start(payment.order.key, "alipay"),
        world.start(payment.order.key, "paypal"),
    )
    for paying in (first, second):
        world.shopper_pays(paying)
        world.notification(paying)
    queueing.refund(second.pk, second.amount)
    world.run_worker()
    assert len(mail.outbox) == 4
    for sent in mail.outbox:
        text, html = bodies(sent)
        found = [*links(text), *links(html)]
        assert len(found) >= 2
        assert all(link.partition("://")[2].startswith(f"{OTHER}/") for link in found), found
        assert "Tea &amp; more" in html
        assert "127.0.0.1:2" not in text + html
    assert all(
        "Tea & more" in sent.body
        for sent in mail.outbox
        if sent.subject.startswith(("Two", "Refund"))
    )


def test_shopper_returns_to_orders_own_site(world: World, payment: Payment) -> None:
    world.shopper_pays(payment)
    answer = world.come_back(payment)
    assert answer["Location"].startswith(f"http://{OTHER}/payments/order/")
    assert (
        Client(SERVER_NAME=OTHER)
        .get(answer["Location"].removeprefix(f"http://{OTHER}"))
        .status_code
        == 200
    )


def test_return_page_links_orders_own_site(
    world: World,
    payment: Payment,
) -> None:
    """The links to change or cancel the order lead there."""
    world.sandbox.control.decline(payment.reference)
    page = world.come_back(payment).content.decode()
    link = next(
        part.partition('"')[0]
        for part in page.split('href="')
        if "/change/" in part.partition('"')[0]
    )
    assert link.startswith(f"http://{OTHER}/payments/order/")
    assert (
        "Green tea"
        in Client(SERVER_NAME=OTHER).get(link.removeprefix(f"http://{OTHER}")).content.decode()
    )


def test_default_site_keeps_public_address(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """A shop that never set the domain of its only site, which is example.com, keeps its links."""
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    world.sandbox.control.decline(payment.reference)
    assert world.come_back(payment).status_code == 200
    world.time.advance(minutes=30)
    world.run_worker()
    assert links(bodies(mail.outbox[0])[0])[0].startswith("http://127.0.0.1:2/payments/pay/")


@pytest.mark.parametrize(("chosen", "prefix"), [("de", "/de/"), ("", "/en/"), ("xx", "/en/")])
def test_links_carry_shoppers_language(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
    chosen: str,
    prefix: str,
) -> None:
    """A payment that the staff started has none, and a language may be gone; `LANGUAGE_CODE` is
    en-us, and the pages are at /en/.
    """
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    Payment.objects.update(data={"language": chosen} if chosen else {})
    world.sandbox.control.decline(payment.reference)
    settings.ROOT_URLCONF = tuple(i18n_patterns(*urls.urlpatterns))
    translation.activate(settings.LANGUAGE_CODE)
    world.client.post(
        reverse("tillgate:payment-notification", args=[payment.notification_key]).replace(
            "/en-us/",
            "/en/",
        ),
    )
    translation.activate(settings.LANGUAGE_CODE)
    world.time.advance(minutes=30)
    world.run_worker()
    second = world.start(payment.order.key, "paypal")
    world.shopper_pays(second)
    reconciling.reconcile(second, "test")
    Payment.objects.update(data={"language": chosen} if chosen else {})
    world.run_worker()
    reminder, confirmation = mail.outbox
    for sent, page in ((reminder, "payments/pay/"), (confirmation, "accounts/order-status/")):
        link = links(bodies(sent)[0])[0]
        path = "/" + link.partition("://")[2].partition("/")[2]
        assert path.startswith(f"{prefix}{page}")
        # Oscar asks a guest for the address first
        assert Client().get(path).status_code in (
            200,
            302,
        )
    assert find(second.order.key).status == "Paid"
    home = return_url(values.payment_value(Payment.objects.get(pk=payment.pk)))
    assert home.startswith(f"{prefix}payments/order/")


def test_order_without_site_uses_public_address(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.get(shopper.buys(product())["Location"])
    get_model("order", "Order").objects.update(site=None)
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    assert world.come_back(payment)["Location"].startswith("/payments/order/")
    world.run_worker()
    assert len(mail.outbox) == 1
