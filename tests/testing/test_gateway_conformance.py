"""The gateway conformance kit: a toy gateway holds every promise, and each of many broken plugins
is caught by its scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.toy_gateway import ToyDriver, ToyPlugin
from tillgate import (
    Account,
    CreatedPayment,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    RefundRequest,
    SignatureMismatch,
    TillgateError,
    Transaction,
    TransactionStatus,
)
from tillgate.hooks import Hint, RefundOutcome, build_plugin_manager
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.gateway_driver import GatewayDriver

ROOT = Path(__file__).parents[2]
SCENARIOS = GatewayConformance.scenarios()


NO_HTTP = "the toy sends no answers that could be spoilt"
DECLINED = dict.fromkeys(
    ("answer_about_another_payment", "answer_without_currency", "answer_without_amount"),
    NO_HTTP,
)


class TestToy(GatewayConformance):
    driver = ToyDriver
    declined = DECLINED


Breaks = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, tuple[str, Breaks]] = {}


def mutant(scenario: str) -> Callable[[Breaks], Breaks]:
    """Add a broken plugin, and the scenario that must catch it."""

    def add(breaks: Breaks) -> Breaks:
        MUTANTS[breaks.__name__] = scenario, breaks
        return breaks

    return add


def after(patch: pytest.MonkeyPatch, name: str, change: Callable[..., Any]) -> None:
    """Let a function of the plugin return something else: `change` gets the plugin, the answer and
    the arguments by name.
    """
    real = getattr(ToyPlugin, name)

    def changed(self: ToyPlugin, *arguments: Any) -> Any:
        return change(self, real(self, *arguments), *arguments)

    use(patch, name, changed)


def use(patch: pytest.MonkeyPatch, name: str, function: Any) -> None:
    """Give the plugin another function, which pluggy calls with the arguments of the real one."""
    real = getattr(ToyPlugin, name)
    function.__wrapped__ = real
    function.tillgate_impl = getattr(real, "tillgate_impl", None)
    patch.setattr(ToyPlugin, name, function)


@mutant("paid_payment")
def gives_the_status_as_text(patch: pytest.MonkeyPatch) -> None:
    after(
        patch,
        "tillgate_query",
        lambda _, answer, *__: replace(answer, status=str(answer.status)),
    )


@mutant("exact_amount_without_decimals")
def takes_every_currency_for_one_with_cents(patch: pytest.MonkeyPatch) -> None:
    use(patch, "to_units", lambda _, amount, currency: int(amount * 100))
    use(patch, "from_units", lambda _, units, currency: Decimal(units) / 100)


@mutant("exact_amount_with_two_decimals")
def asks_for_a_hundred_times_the_amount(patch: pytest.MonkeyPatch) -> None:
    after(patch, "to_units", lambda _, units, *__: units * 100)


@mutant("exact_amount_with_two_decimals")
def answers_with_a_hundredth_of_the_amount(patch: pytest.MonkeyPatch) -> None:
    after(patch, "from_units", lambda _, amount, *__: amount / 100)


@mutant("exact_amount_with_three_decimals")
def rounds_to_cents(patch: pytest.MonkeyPatch) -> None:
    after(patch, "from_units", lambda _, amount, *__: round(amount, 2))


@mutant("exact_amount_with_three_decimals")
def reads_amounts_through_a_float(patch: pytest.MonkeyPatch) -> None:
    after(patch, "from_units", lambda _, amount, *__: Decimal(float(amount)))


@mutant("paid_payment")
def gives_amounts_as_floats(patch: pytest.MonkeyPatch) -> None:
    after(patch, "from_units", lambda _, amount, *__: float(amount))


@mutant("pending_refund_succeeds")
def calls_a_pending_refund_done(patch: pytest.MonkeyPatch) -> None:
    use(patch, "outcome", lambda _, refund: RefundOutcome.SUCCEEDED)


@mutant("pending_refund_fails")
def calls_a_failed_refund_pending_for_ever(patch: pytest.MonkeyPatch) -> None:
    use(
        patch,
        "outcome",
        lambda _, refund: RefundOutcome(
            "pending" if refund["state"] == "failed" else refund["state"],
        ),
    )


@mutant("refund_that_fails")
def calls_a_failed_refund_done(patch: pytest.MonkeyPatch) -> None:
    use(
        patch,
        "outcome",
        lambda _, refund: RefundOutcome(
            "succeeded" if refund["state"] == "failed" else refund["state"],
        ),
    )


@mutant("forged_notification")
def believes_every_notification(patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = ToyPlugin.tillgate_read_notification

    def believing(
        self: ToyPlugin,
        account: Account,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Any:
        with suppress(SignatureMismatch):
            return real(self, account, headers, body)
        return [Hint(reference="x")]

    use(patch, "tillgate_read_notification", believing)


@mutant("notification_is_a_hint")
def finds_another_payment_in_a_notification(patch: pytest.MonkeyPatch) -> None:
    after(
        patch,
        "tillgate_read_notification",
        lambda self, *_: [Hint(reference=list(self.toy.payments)[-1])],
    )


@mutant("notification_is_a_hint")
def marks_a_payment_paid_at_a_notification(patch: pytest.MonkeyPatch) -> None:
    def pays(self: ToyPlugin, hints: list[Hint], *_: Any) -> list[Hint]:
        self.toy.payments[str(hints[0].reference)].state = "paid"
        return hints

    after(patch, "tillgate_read_notification", pays)


@mutant("created_payment")
def loses_the_reference(patch: pytest.MonkeyPatch) -> None:
    def loses(_: ToyPlugin, answer: CreatedPayment, *__: Any) -> CreatedPayment:
        return replace(answer, reference=answer.transaction_no)

    after(patch, "tillgate_pay", loses)


@mutant("lookup_by_reference")
def answers_about_another_reference(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: ToyPlugin, answer: Transaction, *_: Any) -> Transaction:
        return replace(answer, reference=str(answer.transaction_no))

    after(patch, "tillgate_query", forgetful)


@mutant("payments_are_kept_apart")
def answers_with_the_number_of_another_payment(patch: pytest.MonkeyPatch) -> None:
    def other(self: ToyPlugin, answer: Transaction, *_: Any) -> Transaction:
        return replace(answer, transaction_no=next(iter(self.toy.payments.values())).number)

    after(patch, "tillgate_query", other)


@mutant("partial_refunds")
def sends_a_refund_twice(patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = ToyPlugin.tillgate_refund

    def twice(self: ToyPlugin, account: Account, request: RefundRequest) -> Any:
        real(self, account, request.model_copy(update={"refund_id": "again"}))
        return real(self, account, request)

    use(patch, "tillgate_refund", twice)


@mutant("same_refund_id")
def gives_a_refund_another_id_each_time(patch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1000))
    use(patch, "key", lambda _, request: f"{request.refund_id}-{next(numbers)}")


@mutant("lost_creation")
def says_that_nothing_was_sent_after_a_lost_answer(patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = ToyPlugin.send

    def hopeful(self: ToyPlugin, *arguments: Any) -> Any:
        try:
            return real(self, *arguments)
        except OutcomeUnknown:
            raise NotSent("pay", "x", "surely") from None

    patch.setattr(ToyPlugin, "send", hopeful)


@mutant("lost_creation")
def says_that_there_is_no_payment_without_a_number(patch: pytest.MonkeyPatch) -> None:
    def needs_number(_: ToyPlugin, answer: Transaction, account: Account, *__: Any) -> Transaction:
        raise OrderNotFound("unknown", "no number was given", 404)

    after(patch, "tillgate_query", needs_number)


@mutant("lookup_by_reference")
def takes_the_newest_payment_for_the_lost_one(patch: pytest.MonkeyPatch) -> None:
    def newest(self: ToyPlugin, answer: Transaction, *_: Any) -> Transaction:
        last = list(self.toy.payments.values())[-1]
        return replace(answer, transaction_no=last.number, status=TransactionStatus.PENDING)

    after(patch, "tillgate_query", newest)


@mutant("paid_payment")
def remembers_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    known: dict[str, Transaction] = {}
    after(
        patch, "tillgate_query", lambda _, answer, *__: known.setdefault(answer.reference, answer)
    )


@mutant("partial_refunds")
def takes_refunds_of_one_amount_for_one(patch: pytest.MonkeyPatch) -> None:
    use(patch, "key", lambda _, request: f"{request.reference}-{request.amount}")


@mutant("headers_in_any_case")
def reads_headers_as_the_gateway_spells_them(patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = ToyPlugin.tillgate_read_notification

    def literal(
        self: ToyPlugin,
        account: Account,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Any:
        return real(self, account, dict(headers), body)

    use(patch, "tillgate_read_notification", literal)


@mutant("no_secret_in_any_text")
def puts_the_token_into_an_error(patch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = ToyPlugin.send

    def talkative(self: ToyPlugin, account: Account, *arguments: Any) -> Any:
        try:
            return real(self, account, *arguments)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(
                "pay",
                "x",
                f"no answer for {account.token.get_secret_value()}",
            ) from error

    patch.setattr(ToyPlugin, "send", talkative)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_plugin_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, breaks = MUTANTS[name]
    breaks(monkeypatch)
    with ToyDriver() as driver:
        manager = build_plugin_manager(entry_points=False)
        manager.register(driver.plugin_object, name="toy")
        monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
        with pytest.raises((AssertionError, pytest.fail.Exception, TillgateError)):
            getattr(GatewayConformance(), f"test_{scenario}")(driver)


PROJECT = """
    from tests.toy_gateway import ToyDriver
    from tillgate.testing.gateway_conformance import GatewayConformance

    class Driver(ToyDriver):
        {body}

    class TestMine(GatewayConformance):
        driver = Driver
        declined = {declined}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own, without Django's settings."""
    for name in ("PYTEST_ADDOPTS", "DJANGO_SETTINGS_MODULE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
    pytester.makeconftest('pytest_plugins = ["tillgate.testing.gateways"]')
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:django\nfilterwarnings = error\n",
    )
    return pytester


def test_report_names_scenarios_without_result(
    project: pytest.Pytester,
) -> None:
    """They were skipped, declined, overridden or not run."""
    body = (
        "def account(self, currency=None):\n            account = super().account()\n"
        "            account = account.model_copy(update={'currencies': ('USD', 'JPY')})\n"
        "            return account if currency in (None, 'USD', 'JPY') else None"
    )
    source = PROJECT.format(body=body, declined='{"refund_in_the_portal": "it has no portal"}')
    source += "\n        def test_full_refund(self, gateway):\n            pass\n"
    project.makepyfile(test_mine=source)
    chosen = "exact_amount or paid_payment or portal or full_refund"
    result = project.runpytest_subprocess("-k", chosen, "--conformance-report", "report.md")
    result.stdout.re_match_lines(
        [
            r"paid_payment +held",
            r"slow_query +not run",
            r"exact_amount_with_three_decimals +skipped: .*KWD",
        ],
    )
    result.stdout.re_match_lines([r"full_refund +not proven: TestMine overrides the scenario"])
    left = len(SCENARIOS) - 6
    counts = f"1 overridden, 1 skipped, {left} not run, 1 failed"
    result.stdout.re_match_lines([rf"3 of {len(SCENARIOS)} scenarios held \({counts}\): tillgate "])
    assert f"| paid_payment | {SCENARIOS['paid_payment']} | held |" in (
        project.path / "report.md"
    ).read_text("utf-8")


POLISH = """
    from tests.toy_gateway import ACCOUNT, ToyDriver
    from tillgate.gateways import GatewayProfile
    from tillgate.testing.gateway_conformance import GatewayConformance

    POLISH = ACCOUNT.model_copy(
        update={"dialect": GatewayProfile(name="toy", currencies=("PLN",))}
    )

    class Driver(ToyDriver):
        def account(self, currency=None):
            return POLISH if currency in (None, "PLN") else None

    class TestPolish(GatewayConformance):
        driver = Driver
"""


def test_account_of_one_currency_conforms(project: pytest.Pytester) -> None:
    """Every scenario runs in PLN; those of other decimals are skipped."""
    project.makepyfile(test_mine=POLISH)
    left_out = [name for name in SCENARIOS if "slow" in name or name in DECLINED]
    result = project.runpytest_subprocess("-k", f"not ({' or '.join(left_out)})")
    result.assert_outcomes(
        passed=len(SCENARIOS) - 2 - len(left_out),
        skipped=2,
        deselected=len(left_out),
    )


PENDING = """
    from tests.toy_gateway import Toy, ToyDriver, ToyPlugin
    from tillgate.testing.gateway_conformance import GatewayConformance

    class Always(Toy):
        def refund(self, name, key, units, currency):
            was = self.next_refund
            done = super().refund(name, key, units, currency)
            return done if was == "failed" else {**done, "state": "pending"}

    class Driver(ToyDriver):
        def __enter__(self):
            self.toy = Always()
            self.plugin_object = ToyPlugin(self.toy)
            return self

    class TestAlwaysPending(GatewayConformance):
        driver = Driver
"""


def test_refunds_that_pend_first_conform(project: pytest.Pytester) -> None:
    """The query of each refund says then that it succeeded."""
    project.makepyfile(test_mine=PENDING)
    result = project.runpytest_subprocess("-k", "refund or exact")
    chosen = [name for name in SCENARIOS if "refund" in name or "exact" in name]
    result.assert_outcomes(passed=len(chosen), deselected=len(SCENARIOS) - len(chosen))


def test_missing_driver_ability_must_be_declined(project: pytest.Pytester) -> None:
    body = "hold_refund = __import__('tillgate.testing.gateway_driver').testing.gateway_driver.GatewayDriver.hold_refund"
    project.makepyfile(
        test_mine=PROJECT.format(
            body=body,
            declined='{"pending_refund_fails": "it finishes refunds at once"}',
        ),
    )
    project.runpytest_subprocess("-k", "pending_refund").assert_outcomes(
        failed=1,
        xfailed=1,
        deselected=len(SCENARIOS) - 2,
    )


def test_plugin_not_installed_is_named(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_mine=PROJECT.format(
            body="def __enter__(self):\n            return self",
            declined="{}",
        ),
    )
    result = project.runpytest_subprocess("-k", "paid_payment")
    result.assert_outcomes(errors=1, deselected=len(SCENARIOS) - 1)
    result.stdout.fnmatch_lines(["*no plugin 'toy' is installed*"])


def _rows(heading: str) -> dict[str, str]:
    page = (ROOT / "src/tillgate/testing/README.md").read_text("utf-8")
    part = re.split(r"^#+ ", page.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [
        line.removeprefix("- `").split("`", 1)
        for line in part.splitlines()
        if line.startswith("- `")
    ]
    return {name.partition("(")[0]: text.removeprefix(": ") for name, text in lines}


def test_documentation_matches_scenarios_and_acts() -> None:
    page = (ROOT / "src/tillgate/testing/README.md").read_text("utf-8")
    (report,) = re.findall(r"\]\(([^)]+)\)", page.partition("### Scenarios of gateways\n")[2])
    table = (ROOT / "src/tillgate/testing" / report).read_text("utf-8")
    assert dict(re.findall(r"^\| (\w+) \| (.+?\.) \| ", table, re.MULTILINE)) == SCENARIOS
    assert all(message.endswith(".") and "|" not in message for message in SCENARIOS.values())
    assert set(_rows("GatewayDriver")) == {
        name for name in vars(GatewayDriver) if not name.startswith("_")
    } | {"plugin"}
