"""The ends of creations and queries that a shopper waited for, and the consequences for the next
ones.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command

from tests.django.conftest import World
from tillgate import InvalidRequest, NotSent, Refused, WrongCredentials, hooks
from tillgate.django import actions
from tillgate.django.models import Lane, Payment, Review
from tillgate.django.operating import findings
from tillgate.django.operating.health import health
from tillgate.django.payments import admission, creating, reconciling, starting

REFUSED = Refused("000030", "payment method is closed", 400)


def press(world: World, method: str = "alipay") -> str:
    return starting.start_payment(world.shop.plugin, world.order(), method=method).outcome.value


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the gateway refuse every creation with an error; None lets it create again."""
    real = hooks.pay

    def use(error: Exception | None) -> None:
        def pay(*arguments: Any, **options: Any) -> Any:
            if error is not None:
                raise error
            return real(*arguments, **options)

        monkeypatch.setattr(hooks, "pay", pay)

    return use


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        InvalidRequest("amount", "1.00", "is too small"),
        NotSent("pay", "x", "connection refused"),
    ],
)
def test_three_refusals_open_one_review(
    world: World,
    refuse: Any,
    error: Exception,
) -> None:
    refuse(error)
    for _ in range(2):
        press(world)
    assert not Review.objects.exists()
    for _ in range(3):
        world.time.advance(seconds=31)
        press(world)
    review = Review.objects.get()
    assert (review.reason, review.account, review.open_key) == (
        "creations-refused",
        "default",
        "creations-refused:account:default",
    )
    assert (
        review.message
        == f"Account default: several payments in a row with Alipay could not be created ({error})."
    )


def test_success_between_refusals_starts_anew(world: World, refuse: Any) -> None:
    for _ in range(3):
        refuse(REFUSED)
        assert [press(world), press(world)] == ["refused", "refused"]
        refuse(None)
        assert press(world) == "redirect"
    assert not Review.objects.exists()


def test_refusals_count_by_method(world: World, refuse: Any) -> None:
    refuse(REFUSED)
    for method in ("alipay", "paypal", "wechatpay") * 2:
        press(world, method)
    assert not Review.objects.exists()
    press(world, "paypal")
    assert Review.objects.get().facts["method"] == "paypal"


def test_created_payment_closes_the_review(world: World, refuse: Any) -> None:
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    refuse(None)
    press(world, "paypal")
    assert world.reviews() == ["creations-refused"], "another method says nothing about this one"
    press(world)
    assert world.reviews() == []
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    assert world.reviews() == ["creations-refused"], "a new case, though the gateway says the same"


def test_dismissed_refusals_open_no_second_review(world: World, refuse: Any) -> None:
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    actions.take_action(
        Review.objects.get().pk,
        "dismiss",
        staff="ann",
        note="the bank works on it",
    )
    press(world)
    assert world.reviews() == []
    refuse(None)
    press(world)
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    assert world.reviews() == ["creations-refused"]


def test_answered_query_leaves_the_review_open(world: World, refuse: Any) -> None:
    payment = world.start(world.order())
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["creations-refused"]


def test_wrong_credentials_have_their_own_review(world: World, refuse: Any) -> None:
    refuse(WrongCredentials("000030", "no rights", 400))
    for _ in range(4):
        press(world)
    assert world.reviews() == ["wrong-credentials"]


def test_health_and_doctor_show_refusals(
    world: World,
    refuse: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [one.refused_creations for one in health().accounts] == [()]
    refuse(REFUSED)
    for _ in range(3):
        press(world)
    [message] = next(one.refused_creations for one in health().accounts)
    assert "payment method is closed" in message
    found = {one.name: one for one in findings.examine()}
    assert (found["default: new payments"].passed, found["default: new payments"].finding) == (
        False,
        message,
    )
    with pytest.raises(SystemExit):
        call_command("tillgate", "doctor")
    assert message in capsys.readouterr().out


# Queries ----------------------------------------------------------------------------------------


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every query take five seconds, on a clock of its own; return the references that were
    asked about.
    """
    asked, seconds = list[str](), [0.0]
    real = hooks.query

    def query(account: Any, reference: str, **options: Any) -> Any:
        asked.append(reference)
        seconds[0] += 5
        return real(account, reference, **options)

    monkeypatch.setattr(hooks, "query", query)
    monkeypatch.setattr(reconciling, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return asked


def test_pages_stop_asking_hanging_gateway(world: World, hanging: list[str]) -> None:
    """Each query of a page would hold one more thread: the worker asks in their place."""
    rows = [world.start(world.order()) for _ in range(4)]
    for payment in rows[:3]:
        assert world.notification(payment).status_code == 200
    assert hanging == [payment.reference for payment in rows[:2]]
    denied = Payment.objects.get(pk=rows[2].pk)
    assert (denied.notifications, denied.last_polled_at) == (1, None)
    assert denied.next_poll_at is not None
    assert denied.next_poll_at <= world.time.now()
    world.time.advance(seconds=31)
    world.notification(rows[3])
    assert hanging[2:] == [rows[3].reference]


def test_two_slow_queries_far_apart_stop_nothing(world: World, hanging: list[str]) -> None:
    rows = [world.start(world.order()) for _ in range(4)]
    for payment in rows:
        world.time.advance(seconds=31)
        world.notification(payment)
    assert hanging == [payment.reference for payment in rows]
    assert Lane.objects.get(name=":queries:default").rests_until is None


def test_paid_sibling_is_seen_while_queries_rest(world: World) -> None:
    """Creations may work meanwhile: who has paid would pay a second time."""
    order = world.order()
    paid = world.start(order)
    world.shopper_pays(paid)
    for _ in range(2):
        admission.note_hung_query("default")
    assert admission.resting_queries("default").exists()
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert (started.payment.pk, started.outcome) == (paid.pk, creating.StartOutcome.PAID)
    assert world.shop.times_paid(order) == 1
