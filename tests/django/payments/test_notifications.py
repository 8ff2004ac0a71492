"""The traces of a notification: evidence within a bound, its counts, and the review of forged
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connections
from django.utils import timezone

from tests.django.notifying import signed
from tillgate.django.models import Notification, Payment, Review, TimelineEntry, database
from tillgate.django.payments import keeping, notifications
from tillgate.django.refunds import queueing
from tillgate.django.reviews import closing
from tillgate.testing.world import World
from tillgate.wire.dialects import REFERENCE, SignatureRule
from tillgate.wire.notifications import read_notification

FORM = "application/x-www-form-urlencoded"
FORGED = "status=success&verifySign=00000000000000000000000000000000"


def counters(payment: Payment) -> tuple[int, int, int]:
    payment.refresh_from_db()
    return payment.notifications, payment.repeated_notifications, payment.forged_notifications


def test_repeat_about_paid_payment_is_counted(
    world: World,
) -> None:
    """The same notification is not kept again."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    [told] = world.sent(payment)
    for repeated in range(4):
        assert world.post(told).status_code == 200
        assert counters(payment) == (1, repeated, 0)
    assert payment.status == "paid"
    assert Notification.objects.get().evidence["reference"] == payment.reference


def test_another_notification_is_kept_beside_first(world: World) -> None:
    """The payment is already paid."""
    payment = world.paid_payment()
    before = counters(payment)[0]
    for said in ("status=fail", "status=success", "status=fail"):
        assert world.notification(payment, said).status_code == 200
    assert counters(payment) == (before + 3, 0, 0)
    assert [
        notification.evidence.get("status")
        for notification in Notification.objects.order_by("-pk")[:3]
    ] == ["fail", "success", "fail"]


def test_open_payment_keeps_repeated_notifications(world: World) -> None:
    payment = world.start(world.order())
    for count in (1, 2, 3):
        world.notification(payment, "status=pending")
        assert counters(payment) == (count, 0, 0)
    assert Notification.objects.count() == 3


def test_i7_repeated_forgeries_count_as_forged(
    world: World,
) -> None:
    payment = world.paid_payment()
    before = counters(payment)[0]
    for count in (1, 2, 3):
        world.notification(payment, "status=success&verifySign=00000000000000000000000000000000")
        assert counters(payment) == (before + count, 0, count)


def test_notification_reversing_paid_payment_opens_review(
    world: World,
) -> None:
    """The gateway is queried about it."""
    payment = world.paid_payment()
    world.time.advance(days=40)
    world.sandbox.control.reverse(payment.reference)
    world.gateway_notification(payment)
    assert Notification.objects.latest("pk").evidence["status"] == "reversed"
    assert world.reviews() == ["changed-after-paid"]
    assert Review.objects.get().facts["status"] == "reversed"


@pytest.mark.parametrize("body", ["", "status=success", FORGED.replace("success", "reversed")])
def test_i7_useless_notification_causes_no_query(
    world: World,
    body: str,
) -> None:
    """It says nothing new about a paid payment, or it is forged."""
    payment = world.paid_payment()
    world.time.advance(minutes=1)
    before = world.queries()
    world.notification(payment, body)
    assert world.queries() == before


def test_i7_reversing_notifications_cause_one_query(
    world: World,
    configure: Callable[..., None],
) -> None:
    """One query is sent per throttle interval."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = world.paid_payment()
    world.time.advance(minutes=1)
    before = world.queries()
    for number in range(5):
        world.notification(payment, f"status=reversed&number={number % 2}")
    assert world.queries() == before + 1, "the payment's status is known, and the next query is due"
    world.sandbox.control.reverse(payment.reference)
    world.time.advance(seconds=6)
    world.run_worker()
    assert (world.queries(), world.reviews()) == (before + 2, ["changed-after-paid"])


def test_repeated_reversing_notification_is_queried_again(
    world: World,
) -> None:
    """The gateway's query may say so later than its notification."""
    payment = world.paid_payment()
    for is_reversed in (False, True):
        world.time.advance(minutes=1)
        if is_reversed:
            world.sandbox.control.reverse(payment.reference)
        world.notification(payment, "status=reversed")
        assert world.reviews() == ["changed-after-paid"] * is_reversed


def test_i7_contradicting_return_causes_no_query(
    world: World,
) -> None:
    """The payment is already paid."""
    payment = world.paid_payment()
    world.time.advance(minutes=1)
    before = world.queries()
    world.client.get(f"/payments/return/{payment.return_key}/?status=reversed")
    assert world.queries() == before


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_repeated_return_is_counted_not_kept(
    world: World,
    method: str,
) -> None:
    payment = world.paid_payment()
    address = f"/payments/return/{payment.return_key}/?status=success"
    before = counters(payment)[0]
    for repeated in range(3):
        assert world.client.generic(method, address).status_code == 302
        assert counters(payment) == (before + 1, repeated, 0)


@pytest.fixture
def prefixed() -> Iterator[None]:
    """Tables with a prefix of the project's own, as a receiver of `class_prepared` gives them; one
    that must be quoted.
    """
    connection, models = connections[database()], (Payment, Notification)

    def rename(old: str, new: str) -> None:
        with connection.schema_editor() as editor:
            for model in models:
                name = model._meta.db_table.removeprefix(old)
                editor.alter_db_table(model, old + name, new + name)
                model._meta.db_table = new + name
                for field in model._meta.concrete_fields:
                    vars(field).pop("cached_col", None)
        notifications._look_up.cache_clear()
        keeping.count_statement.cache_clear()

    rename("", "Shop_")
    yield
    rename("Shop_", "")


def test_renamed_tables_keep_notifications(
    world: World,
    prefixed: None,
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    [told] = world.sent(payment)
    assert [world.post(told).status_code for _ in range(2)] == [200, 200]
    assert [
        world.notification(payment, f"transactionNo={number}").status_code for number in range(21)
    ] == [200] * 21
    assert counters(payment) == (22, 1, 0)
    assert Notification.objects.count() == 20


# Storage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("status=pending", "absent"),
        (signed(status="pending"), "matches"),
        (FORGED.replace("success", "pending"), "forged"),
    ],
)
def test_notification_keeps_door_method_and_signature(
    world: World,
    method: str,
    body: str,
    signature: str,
) -> None:
    payment = world.start(world.order())
    before = timezone.now()
    path = f"/payments/notification/{payment.notification_key}/"
    world.client.generic(
        method,
        path,
        QUERY_STRING=body,
    ) if method == "GET" else world.client.generic(method, path, body, content_type=FORM)
    kept = Notification.objects.get()
    assert (kept.payment, kept.refund, kept.kind, kept.method, kept.signature) == (
        payment,
        None,
        "payment",
        method,
        signature,
    )
    assert kept.evidence == {"status": "pending"}, "the signature is no evidence (I11)"
    assert before <= kept.received_at <= timezone.now()


def test_long_method_is_cut_to_column(
    world: World,
) -> None:
    """A shop's own page may pass on any HTTP method."""
    payment = world.start(world.order())
    notifications.receive_payment_notification(
        payment.notification_key,
        lambda: read_notification(query="status=pending"),
        "PROPPATCH",
    )
    assert Notification.objects.get().method == "PROPPATC"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_return_is_kept_without_signature_check(world: World, method: str) -> None:
    payment = world.start(world.order())
    world.client.generic(method, f"/payments/return/{payment.return_key}/?{FORGED}")
    kept = Notification.objects.get()
    assert (kept.payment, kept.refund, kept.kind, kept.method, kept.signature) == (
        payment,
        None,
        "return",
        method,
        "absent",
    )
    assert kept.evidence == {"status": "success"}
    assert counters(payment) == (1, 0, 0)


def test_first_twenty_notifications_are_kept(
    world: World,
) -> None:
    """They may come before or after the payment is paid."""
    payment = world.start(world.order())
    for number in range(20):
        if number == 5:
            world.shopper_pays(payment)
        world.notification(payment, f"transactionNo={number}")
    assert payment.kept_notifications.count() == 20
    assert [
        notification.evidence["transactionNo"]
        for notification in payment.kept_notifications.order_by("slot")
    ] == [str(number) for number in range(20)]


def test_refunds_keep_their_own_notifications(
    world: World,
) -> None:
    """The payment and each refund have their own limits."""
    payment = world.paid_payment()
    refunds = [queueing.refund(payment.pk, "1.00"), queueing.refund(payment.pk, "2.00")]
    for number in range(25):
        world.notification(payment, f"transactionNo={number}")
        for refund in refunds:
            world.client.post(
                f"/payments/refund-notification/{refund.notification_key}/",
                signed(transactionNo=f"{refund.amount}-{number}"),
                content_type=FORM,
            )
    for subject in (None, *refunds):
        kept = Notification.objects.filter(payment=payment, refund=subject)
        about = f"{subject.amount}-" if subject else ""
        assert {notification.evidence["transactionNo"] for notification in kept} == {
            f"{about}{number}" for number in range(5, 25)
        }, "the newest"
        assert {(notification.kind, notification.signature) for notification in kept} == {
            ("refund", "matches") if subject else ("payment", "absent"),
        }
        assert sorted(notification.slot for notification in kept) == list(range(20))
    for refund in refunds:
        refund.refresh_from_db()
        assert refund.notifications == 25


def test_another_payments_notifications_are_left_alone(world: World) -> None:
    first, second = world.start(world.order()), world.start(world.order())
    world.notification(second, "status=pending")
    for _ in range(25):
        world.notification(first, "status=waiting")
    assert Notification.objects.get(payment=second).evidence == {"status": "pending"}


def test_newest_notification_replaces_oldest_completely(world: World) -> None:
    payment = world.start(world.order())
    for _ in range(20):
        world.client.get(f"/payments/return/{payment.return_key}/?status=pending")
    old = Notification.objects.earliest("id")
    world.time.advance(minutes=5)
    world.notification(payment, signed(status="success"))
    new = Notification.objects.get(slot=0)
    assert (new.pk, new.kind, new.method, new.signature, new.evidence) == (
        old.pk,
        "payment",
        "POST",
        "matches",
        {"status": "success"},
    )
    assert (new.received_at - old.received_at).total_seconds() > 299
    assert Notification.objects.count() == 20


@pytest.mark.parametrize(("length", "is_whole"), [(8 * 1024 - 14, True), (8 * 1024 - 13, False)])
def test_evidence_is_kept_within_8_kb(
    world: World,
    length: int,
    is_whole: bool,
) -> None:
    """The evidence says that there was more."""
    world.notification(world.start(world.order()), f"vendor={'y' * length}")
    assert Notification.objects.get().evidence == (
        {"vendor": "y" * length} if is_whole else {"...": "the rest was not kept"}
    )


def test_what_comes_before_the_bound_is_kept(world: World) -> None:
    parts = {"status": "success", "vendor": "a" * 5000, "time": "b" * 5000, "amount": "12.50"}
    world.notification(world.start(world.order()), urlencode(parts))
    assert Notification.objects.get().evidence == {
        "status": "success",
        "vendor": "a" * 5000,
        "...": "the rest was not kept",
    }


def test_evidence_names_fields_with_other_values(world: World) -> None:
    """A kept field may come a second time with another value."""
    payment = world.start(world.order())
    world.notification(payment, "time=1&status=1&time=2&status=2&payerName=Ann&payerName=Bob")
    assert Notification.objects.latest("id").evidence == {
        "status": "1",
        "time": "1",
        "...": "not kept: another value of status, time",
    }
    world.notification(payment, f"status=1&status=2&time={'b' * 9000}")
    assert Notification.objects.latest("id").evidence == {
        "status": "1",
        "...": "not kept: another value of status, and the rest",
    }


def test_unreadable_parts_are_kept_as_evidence(world: World) -> None:
    world.notification(world.start(world.order()), '{"status": ', "application/json")
    assert Notification.objects.get().evidence == {
        "?": "the body was not understood (JSONDecodeError)",
    }


# Repetition ---------------------------------------------------------------------------------------


def test_door_method_and_signature_distinguish_notifications(
    world: World,
) -> None:
    payment = world.paid_payment()
    path, back = (
        f"/payments/notification/{payment.notification_key}/",
        f"/payments/return/{payment.return_key}/",
    )
    before = counters(payment)[0]
    others: list[Callable[[], object]] = [
        lambda: world.client.get(f"{back}?status=success"),
        lambda: world.client.get(f"{path}?status=success"),
        lambda: world.client.post(path, "status=success", content_type=FORM),
        lambda: world.client.post(path, signed(status="success"), content_type=FORM),
        lambda: world.client.post(path, '{"status": ', content_type="application/json"),
        lambda: world.client.post(path, "", content_type=FORM),
    ]
    for count, send in enumerate(others, 1):
        for repeated in (count - 1, count):
            send()
            assert counters(payment) == (before + count, repeated, 0)


def test_field_order_makes_no_new_notification(world: World) -> None:
    payment = world.paid_payment()
    before = counters(payment)[0]
    for repeated, body in enumerate(("status=success&amount=12.50", "amount=12.50&status=success")):
        world.notification(payment, body)
        assert counters(payment) == (before + 1, repeated, 0)


def test_notification_digest_fills_its_column(world: World) -> None:
    assert (
        len(world.paid_payment().last_notification)
        == Payment._meta.get_field("last_notification").max_length
    )


# Forgery ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "body", "signature"),
    [
        (SignatureRule.REQUIRED, "status=pending", "forged"),
        (SignatureRule.REQUIRED, signed(status="pending"), "matches"),
        (SignatureRule.REQUIRED, FORGED, "forged"),
        (SignatureRule.IGNORED, FORGED, "absent"),
        (SignatureRule.IGNORED, signed(status="pending"), "absent"),
    ],
)
def test_dialect_decides_value_of_signature(
    world: World,
    configure: Callable[..., None],
    rule: SignatureRule,
    body: str,
    signature: str,
) -> None:
    configure({"DIALECT": replace(REFERENCE, notification_signature=rule)})
    payment = world.start(world.order())
    world.notification(payment, body)
    assert Notification.objects.get().signature == signature
    assert counters(payment)[2] == (signature == "forged")


def test_missing_accounts_notification_is_kept(
    world: World,
) -> None:
    """Its signature cannot be checked."""
    payment = world.start(world.order())
    Payment.objects.update(account="gone")
    assert world.notification(payment, FORGED).status_code == 200
    assert Notification.objects.get().signature == "absent"
    assert world.reviews() == ["account-gone"]


def test_many_forged_notifications_raise_review(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Once it is resolved, many more raise another one."""
    configure(FORGED_NOTIFICATIONS_BEFORE_REVIEW=3)
    payment = world.start(world.order())
    for open_ones in ([], [], ["forged-notifications"], ["forged-notifications"]):
        world.notification(payment, FORGED)
        assert world.reviews() == open_ones
    review = Review.objects.get()
    assert (
        review.message
        == f"Payment {payment.reference}: 3 notifications were not signed with the account's token."
    )
    assert (review.order, review.payment, review.account) == (payment.order, payment, "default")
    assert TimelineEntry.objects.get(event="review.opened").actor == "webhook"
    closing.resolve(review.pk, "somebody's scanner", "ann")
    for open_ones in ([], ["forged-notifications"]):
        world.notification(payment, FORGED)
        assert world.reviews() == open_ones


# Consequences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", ["webhook", "return"])
def test_timeline_names_door_of_news(world: World, actor: str) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.notification(payment) if actor == "webhook" else world.come_back(payment)
    assert TimelineEntry.objects.get(event="payment.paid").actor == actor


def test_forged_notification_still_causes_query(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.notification(payment, FORGED)
    assert world.fresh(payment).status == "paid"


@pytest.mark.parametrize(("fails", "body"), [("ask", "status=success"), ("review_forged", FORGED)])
def test_kept_notification_is_acknowledged_despite_failure(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: str,
    body: str,
) -> None:
    """Handling it may fail after it was kept."""
    payment = world.start(world.order())

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(notifications, fails, fail)
    answer = world.notification(payment, body)
    assert (answer.status_code, answer.content, Notification.objects.count()) == (
        200,
        b"success",
        1,
    )
    assert f"failed to process a notification of {payment.reference}" in caplog.text


def test_notification_is_kept_despite_plugin_failure(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plugin that holds its account fails."""
    payment = world.start(world.order())

    def broken(alias: str) -> Any:
        raise RuntimeError(alias)

    monkeypatch.setattr("tillgate.django.accounts.find_account", broken)
    answer = world.notification(payment)
    assert (answer.status_code, answer.content, Notification.objects.count()) == (
        200,
        b"success",
        1,
    )
