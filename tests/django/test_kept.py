"""A database with an open review of every reason, written by an earlier state of the code: it
loads, it is upgraded, and staff can decide.

`python -m tests.django.kept.write` writes the file, before the first release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import translation

from tests.django.kept import filling
from tests.django.kept.gateway import ANSWERS, Answering, Moment, running
from tests.django.kept.write import FILE
from tests.smallest_shop.models import ShopOrder
from tillgate.django import actions
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.refunds.limits import refundable
from tillgate.django.worker.run import run_worker
from tillgate.lifecycle import POLICIES, ReviewAction, ReviewReason, Scope, reasons
from tillgate.sandbox import PUBLISHED_TEST_TOKEN

FILES = sorted(FILE.parent.glob("*.json"))
DECISIONS = [
    (reason, action)
    for reason, policy in POLICIES.items()
    for action in policy.actions
    if action is not ReviewAction.REOPEN  # the shop of the kept database reopens no orders
]
HELD = reasons(holds_money=True) | {ReviewReason.DUPLICATE_TRANSACTION_NO}
_ASKED_AGAIN = (
    ReviewAction.FORCE_EXPIRE,
    ReviewAction.ACCEPT_AS_PAID,
    ReviewAction.REFUND_REPORTED,
)
"""The actions before which the gateway is asked once more."""
MODELS = (Order, Payment, Refund, Review, OutboxEvent, TimelineEntry)


def load(file: Path, *, from_nothing: bool = False) -> None:
    """Load a kept database at the migration that its name begins with, and migrate to the present
    one.
    """
    loader = MigrationLoader(connection)
    [(_, latest)] = loader.graph.leaf_nodes("tillgate")
    written_at = loader.get_migration_by_prefix("tillgate", file.name.partition("_")[0]).name
    others = [node for node in loader.graph.leaf_nodes() if node[0] != "tillgate"]
    models = loader.project_state([("tillgate", written_at), *others]).apps
    if from_nothing:
        call_command("migrate", "tillgate", "zero", verbosity=0)
    if from_nothing or written_at != latest:
        call_command("migrate", "tillgate", written_at, verbosity=0)
    # rows of that time, which the present models may not fit
    with mock.patch("django.core.serializers.python.apps", models):
        call_command("loaddata", file, verbosity=0)
    if from_nothing or written_at != latest:
        call_command("migrate", "tillgate", verbosity=0)


@pytest.fixture(scope="module")
def upgraded() -> dict[Path, str]:
    """The rows of each kept database after its upgrade, which is done once and takes seconds."""
    return {}


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def gateway(
    request: pytest.FixtureRequest,
    upgraded: dict[Path, str],
    tmp_path: Path,
) -> Iterator[Answering]:
    """The gateway of a kept database, a day after the last thing that happened in it."""
    file = request.param
    if file in upgraded:
        rows = tmp_path / "upgraded.json"
        rows.write_text(upgraded[file], "utf-8")
        call_command("loaddata", rows, verbosity=0)
    else:
        load(file)
        text = StringIO()
        call_command("dumpdata", "tillgate", "smallest_shop", stdout=text)
        upgraded[file] = text.getvalue()
    with running(
        Moment(Review.objects.latest("opened_at").opened_at + timedelta(days=1)),
    ) as answering:
        yield answering


def reviews_with(reason: ReviewReason, action: ReviewAction) -> list[Review]:
    """Return the open reviews of a reason that offer an action.

    Of two reviews about held money, a refund waits in one: staff withdraw that one and decide
    otherwise about the other.
    """
    found = [
        review
        for review in Review.objects.filter(reason=reason, resolved_at=None).order_by("pk")
        if action in actions.actions_for(review)
    ]
    if reason not in HELD:
        return found
    waiting = set(Refund.objects.filter(status="queued").values_list("payment_id", flat=True))
    return [
        review
        for review in found
        if (review.payment_id in waiting) is (action is ReviewAction.WITHDRAW)
    ]


def prepare(review: Review, action: ReviewAction, gateway: Answering) -> dict[str, Any]:
    """Bring gateway and shop into the state that staff find, and return the input that staff give
    with the decision.
    """
    reason = ReviewReason(review.reason)
    if action in _ASKED_AGAIN:
        assert review.payment
        gateway.says[review.payment.reference] = ANSWERS[reason]
    if action is ReviewAction.REDELIVER and review.order and review.outbox_event is None:
        ShopOrder.objects.filter(pk=review.order.key).update(status="open", total=Decimal("12.50"))
    if action in (ReviewAction.REFUND, ReviewAction.RECORD_EXTERNAL_REFUND):
        assert review.payment
        return {"amount": refundable(review.payment)}
    note = "T-FOUND" if action is ReviewAction.ENTER_NUMBER else "as the back office shows"
    asks = action in (ReviewAction.POLL, ReviewAction.ENTER_NUMBER)
    if asks and review.payment and not review.payment.transaction_no:
        gateway.says[review.payment.reference] = {"transaction_no": "T-FOUND"}
    return {"note": note, "expected_version": review.version}


def outcome(review: Review, action: ReviewAction) -> tuple[str | None, ...]:
    """Return the statuses that a decision may change: those of the review, the payment, the newest
    refund and the outbox event.
    """
    review = Review.objects.select_related("payment", "refund", "outbox_event").get(pk=review.pk)
    payment, event = review.payment, review.outbox_event
    if payment is None and review.account:
        payment = Payment.objects.filter(account=review.account).latest("pk")
    refund = Refund.objects.filter(payment=payment).order_by("pk").last() if payment else None
    refund = (
        review.refund
        if review.refund and action is not ReviewAction.RECORD_EXTERNAL_REFUND
        else refund
    )
    return (review.status, *(row.status if row else None for row in (payment, refund, event)))


def expected(
    before: tuple[str | None, ...],
    reason: ReviewReason,
    action: ReviewAction,
    *,
    is_remote: bool,
) -> tuple[str | None, ...]:
    """Return the statuses after a decision."""
    _, payment, refund, event = before
    match action:
        case ReviewAction.POLL if reason is ReviewReason.REFUND_LATE:
            return ("resolved", payment, "succeeded", event)
        case ReviewAction.POLL:
            # The payment stays paid, and a reversal that the gateway takes back is still for staff
            # to judge.
            return (
                "open" if reason is ReviewReason.CHANGED_AFTER_PAID else "resolved",
                "paid",
                refund,
                event,
            )
        case ReviewAction.FORCE_EXPIRE:
            return ("dismissed", "expired", refund, event)
        case ReviewAction.ACCEPT_AS_PAID | ReviewAction.ENTER_NUMBER:
            return ("resolved", "paid", refund, event)
        case ReviewAction.REFUND_REPORTED:
            return ("resolved", "paid", "succeeded", event)
        case ReviewAction.REFUND | ReviewAction.RECORD_EXTERNAL_REFUND | ReviewAction.REFUND_DONE:
            return ("resolved", payment, "succeeded", event)
        case ReviewAction.REFUND_NOT_DONE:
            return ("resolved", payment, "failed", event)
        case ReviewAction.WITHDRAW:
            return (
                "resolved" if reason is ReviewReason.REFUND_NOT_SENT else "open",
                payment,
                "failed",
                event,
            )
        case ReviewAction.REDELIVER:
            return ("resolved", payment, refund, event and "delivered")
        case ReviewAction.DISMISS:
            return ("dismissed", payment, refund, "abandoned" if is_remote else event)
    raise AssertionError(f"say what {action} changes")


@pytest.mark.once
@pytest.mark.parametrize("action", ReviewAction)
def test_staff_can_decide_all_kept_reviews(
    gateway: Answering,
    action: ReviewAction,
) -> None:
    """Every action works for every reason that offers it."""
    found, wanted = {}, {}
    for reason in [reason for reason, offered in DECISIONS if offered is action]:
        offering = reviews_with(reason, action)
        assert offering, f"no kept review of {reason} offers it: write the kept database anew"
        for review in offering:
            before, is_remote = (
                outcome(review, action),
                review.outbox_event is not None and review.outbox_event.kind == "remote",
            )
            actions.take_action(review.pk, action, staff="ann", **prepare(review, action, gateway))
            found[reason, review.pk] = outcome(review, action)
            wanted[reason, review.pk] = expected(before, reason, action, is_remote=is_remote)
            if action is ReviewAction.ACCEPT_AS_PAID:
                assert review.payment
                assert Payment.objects.get(pk=review.payment.pk).amount == Decimal(
                    review.facts["found"],
                )
            if action is ReviewAction.REDELIVER and not is_remote:
                assert review.order
                assert ShopOrder.objects.get(pk=review.order.key).status == "paid"
    assert found == wanted


@pytest.mark.usefixtures("gateway")
def test_kept_database_covers_every_review_policy() -> None:
    """It has every reason, every action and every scope."""
    assert set(Review.objects.filter(resolved_at=None).values_list("reason", flat=True)) == {
        str(reason) for reason in ReviewReason
    }
    offered = {
        (review.reason, action)
        for review in Review.objects.all()
        for action in actions.actions_for(review)
    }
    assert offered == {(str(reason), action) for reason, action in DECISIONS}
    assert {POLICIES[ReviewReason(review.reason)].scope for review in Review.objects.all()} == set(
        Scope,
    )


@pytest.mark.usefixtures("gateway")
def test_kept_reviews_have_complete_messages() -> None:
    """English and German messages have no gaps."""
    for review in Review.objects.all():
        english = review.message
        with translation.override("de"):
            german = review.message
        assert german != english
        for message in (english, german):
            assert not re.search(r"%\(|\?|\{|None", message), message
            assert len(message) > 20


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kept_database_can_be_upgraded(file: Path) -> None:
    """The upgrade starts at the migration it was written with."""
    load(file, from_nothing=True)
    written = {
        model: file.read_text("utf-8").count(f'"model": "{model._meta.label_lower}"')
        for model in MODELS
    }
    assert {model: model.objects.count() for model in MODELS} == written
    assert all(written.values())
    with running(Moment(Review.objects.latest("opened_at").opened_at + timedelta(days=1))):
        assert run_worker().faults == []


def test_filling_opens_review_of_every_reason() -> None:
    with filling.same_everywhere():
        filling.fill()
    assert set(Review.objects.filter(resolved_at=None).values_list("reason", flat=True)) == {
        str(reason) for reason in ReviewReason
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_i11_kept_database_holds_no_secrets(file: Path) -> None:
    """It holds neither a token nor a signature."""
    text = file.read_text("utf-8")
    assert PUBLISHED_TEST_TOKEN not in text
    assert "verifySign" not in text
