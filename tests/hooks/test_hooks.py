"""The hooks: the parts that plug in without a change of the core, and the harm that a bad plugin
cannot do.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import ClassVar

import httpx
import pluggy
import pytest

from tests.stand_in import standing_in
from tillgate import (
    Account,
    AsyncGateway,
    ConfigurationError,
    CreatedPayment,
    Gateway,
    GatewayProfile,
    InvalidRequest,
    Method,
    NotSent,
    OutcomeUnknown,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Refused,
    Transaction,
    TransactionStatus,
    hooks,
)
from tillgate.hooks import (
    Event,
    OrderDescription,
    build_plugin_manager,
    emit,
    hookimpl,
    plugin_manager,
)
from tillgate.hooks.manager import ADAPTER_NAME, call_owner
from tillgate.lifecycle import RefundStatus, decide_refund
from tillgate.transport import AsyncTransport

FIRST = Account(base_url="https://first.example", merchant_no="1", token="first-token")
SECOND = Account(base_url="https://second.example", merchant_no="2", token="second-token")


def request(method: str = "alipay") -> PaymentRequest:
    return PaymentRequest(
        reference="100017-7Q2MZK4RXW3DA",
        currency="USD",
        amount="12.50",
        method=method,
        terminal="ONLINE",
        ipn_url="https://shop.example/ipn/x",
        callback_url="https://shop.example/back?amount={amount}",
    )


def created(account: Account) -> CreatedPayment:
    return CreatedPayment(
        transaction_no=f"T-{account.merchant_no}",
        payment_url=f"{account.base_url}/cashier",
        reference="100017-7Q2MZK4RXW3DA",
        amount=Decimal("12.50"),
        currency="USD",
        settle_currency="USD",
        raw={},
    )


class CannedGateway:
    """Answers everything itself."""

    @hookimpl
    def tillgate_pay(self, account: Account) -> CreatedPayment:
        return created(account)

    @hookimpl
    def tillgate_query(self, reference: str) -> Transaction:
        return Transaction(
            reference=reference,
            status=TransactionStatus.PENDING,
            status_text="pending",
            transaction_no="T-1",
            amount=None,
            currency=None,
            settle_currency=None,
            raw={},
        )


class LogsCalls:
    """Wraps every implementation."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl(wrapper=True)
    def tillgate_pay(
        self,
        account: Account,
        request: PaymentRequest,
    ) -> Generator[None, CreatedPayment, CreatedPayment]:
        self.seen.append(f"pay {request.reference} with {account.merchant_no}")
        answer = yield
        self.seen.append(f"got {answer.transaction_no}")
        return answer


@pytest.fixture
def plug() -> Iterator[object]:
    """Register plugins for one test."""

    def register(plugin: object, name: str | None = None, *, answers: bool = False) -> object:
        if answers:
            stack.enter_context(standing_in(plugin))
        else:
            plugin_manager().register(plugin, name=name)
            stack.callback(lambda: plugin_manager().unregister(plugin))
        return plugin

    with ExitStack() as stack:
        yield register


def test_a_canned_gateway_can_be_plugged_in(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway(), answers=True)
    assert hooks.pay(FIRST, request()).transaction_no == "T-1"
    assert hooks.query(FIRST, "ANY").status is TransactionStatus.PENDING


def test_logging_can_be_wrapped_around_whoever_answers(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway(), answers=True)
    log = plug(LogsCalls())
    hooks.pay(FIRST, request())
    assert log.seen == ["pay 100017-7Q2MZK4RXW3DA with 1", "got T-1"]


def test_only_the_profiles_plugin_answers(plug) -> None:  # type: ignore[no-untyped-def]
    """Another plugin's hook is not called, not even for an account of the built-in wire."""
    plug(CannedGateway(), answers=True)

    class Intruder:
        @hookimpl(tryfirst=True)
        def tillgate_pay(self) -> None:
            raise AssertionError

    plug(Intruder())
    assert hooks.pay(FIRST, request()).transaction_no == "T-1"


def test_each_account_gets_own_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The built-in adapter keeps a separate gateway for each account."""
    sent = []

    def answer(http: httpx.Request) -> httpx.Response:
        sent.append(http.url.host)
        return httpx.Response(200, json={"ret_code": "000100", "ret_msg": "refund success"})

    monkeypatch.setattr(
        "tillgate.hooks.adapter.Gateway",
        lambda account: Gateway(account, transport=httpx.MockTransport(answer)),
    )
    manager = build_plugin_manager(entry_points=False)
    for account in (FIRST, SECOND, FIRST):
        manager.hook.tillgate_refund(
            account=account,
            request=RefundRequest(reference="A-1", currency="USD", amount="1.00"),
        )
    assert sent == ["first.example", "second.example", "first.example"]


def test_plugin_without_methods_offers_its_profile(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway(), "canned")
    profile = GatewayProfile(
        name="canned",
        base_url="https://canned.example",
        currencies=("USD",),
        methods=(Method(code="checkout"),),
    )
    assert hooks.payment_methods(Account(dialect=profile, token="key")) == profile.methods


def test_missing_answering_plugin_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = build_plugin_manager(entry_points=False)
    manager.unregister(name=ADAPTER_NAME)
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    for call in (
        lambda: hooks.pay(FIRST, request()),
        lambda: hooks.query(FIRST, "A-1"),
        lambda: hooks.payment_methods(FIRST),
    ):
        with pytest.raises(ConfigurationError, match="which is not installed"):
            call()


def test_forgotten_answer_leaves_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tillgate's own adapter does not answer for the gateway of a plugin."""
    manager = build_plugin_manager(entry_points=False)
    manager.register(object(), name="elsewhere")
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    elsewhere = Account(
        base_url="http://127.0.0.1:1",
        token="t" * 8,
        sandbox=True,
        dialect=GatewayProfile(name="elsewhere", currencies=("USD",)),
    )
    with pytest.raises(OutcomeUnknown, match="must be answered with a CreatedPayment"):
        hooks.pay(elsewhere, request())
    with pytest.raises(ConfigurationError, match="must be answered with a Transaction"):
        hooks.query(elsewhere, "A-1")
    assert (
        hooks.query_refund(elsewhere, RefundRequest(reference="A-1", amount="1.00", currency="USD"))
        is None
    )


class ForgetsToReturn:
    @hookimpl(wrapper=True)
    def tillgate_refund(self) -> Generator[None, Refunded, None]:
        yield


class RaisesAfterwards:
    @hookimpl(wrapper=True)
    def tillgate_refund(self) -> Generator[None, Refunded, Refunded]:
        yield
        raise ZeroDivisionError


class CannedRefund:
    @hookimpl
    def tillgate_refund(self, request: RefundRequest) -> Refunded:
        return Refunded(
            reference=request.reference,
            amount=request.amount,
            ret_msg="refund success",
        )


@pytest.mark.parametrize("faulty", [ForgetsToReturn, RaisesAfterwards])
def test_i6_spoiled_refund_stays_unknown(  # type: ignore[no-untyped-def]
    plug,
    faulty: type,
) -> None:
    """A refund that a plugin spoils is never queued again."""
    plug(CannedRefund(), answers=True)
    plug(faulty())
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert decide_refund(caught.value) is RefundStatus.UNKNOWN


def refunding(sent: list[str]) -> object:
    """Return an adapter whose gateway takes every refund and notes it."""

    def take(http: httpx.Request) -> httpx.Response:
        sent.append(http.url.path)
        return httpx.Response(200, json={"ret_code": "000100", "ret_msg": "refund success"})

    gateway = Gateway(FIRST, transport=httpx.MockTransport(take))

    class Adapter:
        @hookimpl
        def tillgate_refund(self, request: RefundRequest) -> Refunded:
            return gateway.refund(request)

    return Adapter()


class AsksAfterwards:
    @hookimpl(wrapper=True)
    def tillgate_refund(self, request: RefundRequest) -> Generator[None, Refunded, Refunded]:
        yield
        raise NotSent("query", request.reference, "connection refused")


class BuildsSomethingWrongAfterwards:
    @hookimpl(wrapper=True)
    def tillgate_refund(self) -> Generator[None, Refunded, Refunded]:
        yield
        RefundRequest(reference="A-1", currency="USD", amount="wrong")
        raise AssertionError


@pytest.mark.parametrize("faulty", [AsksAfterwards, BuildsSomethingWrongAfterwards])
def test_i6_late_plugin_error_means_unknown(  # type: ignore[no-untyped-def]
    plug,
    faulty: type,
) -> None:
    """An error after sending never passes for not sent or refused."""
    sent: list[str] = []
    plug(refunding(sent), answers=True)
    plug(faulty())
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert decide_refund(caught.value) is RefundStatus.UNKNOWN
    assert len(sent) == 1


def test_i6_forgotten_return_does_not_send_twice(plug) -> None:  # type: ignore[no-untyped-def]
    sent: list[str] = []
    adapter = refunding(sent)

    class SendsAndForgets:
        @hookimpl(wrapper=True)
        def tillgate_refund(self, request: RefundRequest) -> Generator[None, Refunded, Refunded]:
            adapter.tillgate_refund(request)  # type: ignore[attr-defined]
            return (yield)

    plug(adapter, answers=True)
    plug(SendsAndForgets())
    with pytest.raises(OutcomeUnknown, match="sent it already"):
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert len(sent) == 1


@contextmanager
def answering_asynchronously(answer: httpx.Response | Exception) -> Iterator[list[str]]:
    """Let AsyncGateway get this answer; yield its requests."""
    sent: list[str] = []

    def take(http: httpx.Request) -> httpx.Response:
        sent.append(http.url.path)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.MonkeyPatch.context() as patch:
        given = AsyncTransport(FIRST, httpx.MockTransport(take))
        patch.setattr("tillgate.transport.async_transport", lambda *_: given)
        yield sent


async def refund_asynchronously(request: RefundRequest) -> Refunded:
    async with AsyncGateway(FIRST) as gateway:
        return await gateway.refund(request)


async def pay_asynchronously(request: PaymentRequest) -> CreatedPayment:
    async with AsyncGateway(FIRST) as gateway:
        return await gateway.pay(request)


def test_i6_async_plugin_call_is_not_repeated(  # type: ignore[no-untyped-def]
    plug,
) -> None:
    """The built-in adapter does not resend a request that a plugin sent asynchronously."""

    class LosesTheAnswer:
        @hookimpl(wrapper=True)
        def tillgate_pay(self, request: PaymentRequest) -> Generator[None, object, object]:
            with suppress(OutcomeUnknown):
                asyncio.run(pay_asynchronously(request))
            return (yield)

        @hookimpl(wrapper=True)
        def tillgate_refund(self, request: RefundRequest) -> Generator[None, object, object]:
            with suppress(OutcomeUnknown):
                asyncio.run(refund_asynchronously(request))
            return (yield)

    plug(LosesTheAnswer())
    with answering_asynchronously(httpx.ReadError("cut")) as sent:
        with pytest.raises(OutcomeUnknown, match="sent it already"):
            hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
        with pytest.raises(OutcomeUnknown, match="sent it already"):
            hooks.pay(FIRST, request())
    assert len(sent) == 2


def test_i6_async_plugin_cannot_deny_sending(plug) -> None:  # type: ignore[no-untyped-def]
    class Denies:
        @hookimpl
        def tillgate_refund(self, request: RefundRequest) -> None:
            asyncio.run(refund_asynchronously(request))
            raise NotSent("refund", request.reference, "my queue is full")

    plug(Denies(), answers=True)
    answer = httpx.Response(200, json={"ret_code": "000100", "ret_msg": "refund success"})
    with (
        answering_asynchronously(answer) as sent,
        pytest.raises(OutcomeUnknown, match="my queue is full"),
    ):
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert len(sent) == 1


def test_i6_refund_being_sent_is_not_duplicated(plug) -> None:  # type: ignore[no-untyped-def]
    """A refund is not sent while a task of the plugin is still sending it."""

    async def twice(request: RefundRequest) -> list[Refunded | BaseException]:
        return await asyncio.gather(
            *(refund_asynchronously(request) for _ in range(2)),
            return_exceptions=True,
        )

    class Hedges:
        @hookimpl
        def tillgate_refund(self, request: RefundRequest) -> Refunded | None:
            done = asyncio.run(twice(request))
            return next((one for one in done if isinstance(one, Refunded)), None)

    plug(Hedges(), answers=True)
    answer = httpx.Response(200, json={"ret_code": "000100", "ret_msg": "refund success"})
    with answering_asynchronously(answer) as sent:
        assert (
            hooks.refund(
                FIRST,
                RefundRequest(reference="A-1", currency="USD", amount="2.50"),
            ).reference
            == "A-1"
        )
    assert len(sent) == 1


def test_refused_and_unsent_reach_caller_unchanged(plug) -> None:  # type: ignore[no-untyped-def]
    for error in (NotSent("refund", "A-1", "connection refused"), Refused("000020", "no", 400)):

        class Fails:
            @hookimpl
            def tillgate_refund(self, error: BaseException = error) -> None:
                raise error

        with standing_in(Fails()), pytest.raises(type(error)):
            hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))


def test_unknown_hook_is_refused_by_name() -> None:
    class Misspelt:
        @hookimpl
        def tillgate_payment_payed(self) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match=r"'Misspelt' .* hook 'tillgate_payment_payed': did you mean "
        r"'tillgate_payment_paid'\?",
    ):
        build_plugin_manager(Misspelt(), entry_points=False)


def test_hook_that_never_runs_is_refused() -> None:
    """The error names a hook that Tillgate would never call."""

    class Unmarked:
        def tillgate_refund_changed(self, refund: object) -> None: ...

    class MarkedForAnother:
        @pluggy.HookimplMarker("another project")
        def tillgate_order_unpaid(self, order: object) -> None: ...

    class Static:
        @staticmethod
        def tillgate_return_url(payment: object) -> str | None: ...

    class Async:
        @hookimpl
        async def tillgate_refund_changed(self, refund: object) -> None: ...

    class Yielding:
        @hookimpl
        def tillgate_order_unpaid(self, order: object) -> Iterator[None]:
            yield

    class YieldingAsync:
        @hookimpl
        async def tillgate_event(self, event: object) -> AsyncIterator[None]:
            yield

    class Wrapping:
        @hookimpl(wrapper=True)
        def tillgate_event(self, event: object) -> Generator[None, object, object]:
            return (yield)

    class Renamed:
        @hookimpl(specname="tillgate_describe_order")
        def describe(self, order_key: str) -> None: ...

    refused = {
        Wrapping: "tillgate_event is a wrapper, and never runs",
        Renamed: "tillgate_describe_order has another name here, and would be called for orders "
        "of other plugins",
        Unmarked: "tillgate_refund_changed has no mark, and is never called: put @hookimpl",
        MarkedForAnother: "tillgate_order_unpaid has no mark",
        Static: "tillgate_return_url has no mark",
        Async: "tillgate_refund_changed is async, and nobody awaits it: write def",
        Yielding: "tillgate_order_unpaid has a yield, .* mark it @hookimpl\\(wrapper=True\\)",
        YieldingAsync: "tillgate_event is async",
    }
    for plugin, said in refused.items():
        with pytest.raises(ConfigurationError, match=f"'{plugin.__name__}' cannot be used: {said}"):
            build_plugin_manager(plugin(), entry_points=False)


def test_renamed_hooks_and_wrappers_run() -> None:
    class Renamed:
        @hookimpl(specname="tillgate_account")
        def account(self, alias: str) -> Account | None:
            return FIRST if alias == "first" else None

        @hookimpl(wrapper=True)
        def tillgate_query(self) -> Generator[None, object, object]:
            return (yield)

        tillgate_refund = None

    manager = build_plugin_manager(Renamed(), entry_points=False)
    assert manager.hook.tillgate_account(alias="first") is FIRST


def test_unknown_argument_is_refused_by_name() -> None:
    class Misspelt:
        @hookimpl
        def tillgate_pay(self, acount: Account) -> None: ...

    with pytest.raises(ConfigurationError, match="acount"):
        build_plugin_manager(Misspelt(), entry_points=False)


def test_unimportable_plugin_explains_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = importlib.metadata.EntryPoint(
        name="broken",
        value="no_such_module_of_tillgate",
        group="tillgate",
    )

    class Distribution:
        entry_points = (broken,)
        metadata: ClassVar = {"name": "tillgate-broken"}

    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Distribution()])
    with pytest.raises(
        ConfigurationError,
        match=r"'broken' could not be loaded.*no_such_module_of_tillgate",
    ):
        build_plugin_manager()


def test_plugin_is_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tillgate_toy")
    monkeypatch.setitem(sys.modules, "tillgate_toy", module)

    class Distribution:
        entry_points = (
            importlib.metadata.EntryPoint(name="toy", value="tillgate_toy", group="tillgate"),
        )
        metadata: ClassVar = {"name": "tillgate-toy"}

    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Distribution()])
    assert build_plugin_manager().get_plugin("toy") is module


def test_importing_the_hooks_loads_no_plugin() -> None:
    code = (
        "import tillgate, tillgate.hooks.manager as m; assert "
        "m.plugin_manager.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("truth", [True, False])
def test_not_payable_detail_rejects_booleans(truth: bool) -> None:
    with pytest.raises(
        InvalidRequest,
        match=f"not_payable_detail: {truth} must be None, or a clause",
    ):
        OrderDescription(
            number="7",
            currency="USD",
            amount=Decimal("12.50"),
            not_payable_detail=truth,  # type: ignore[arg-type]
        )


class Shop:
    def __init__(self, number: str) -> None:
        self.number = number

    @hookimpl
    def tillgate_describe_order(self, order_key: str) -> OrderDescription:
        return OrderDescription(
            number=f"{self.number}-{order_key}",
            currency="USD",
            amount=Decimal("1.00"),
        )


def test_only_owning_plugin_is_asked(plug) -> None:  # type: ignore[no-untyped-def]
    plug(Shop("A"), "shop-a")
    plug(Shop("B"), "shop-b")
    described = call_owner("shop-a", "tillgate_describe_order", order_key="7")
    assert described.number == "A-7"
    assert described.payable
    assert call_owner("shop-b", "tillgate_describe_order", order_key="7").number == "B-7"


def test_owner_without_hook_answers_none(plug) -> None:  # type: ignore[no-untyped-def]
    """Hooks of other plugins are not used instead."""
    plug(Shop("A"), "shop-a")
    plug(CannedGateway(), "no-shop")
    assert call_owner("no-shop", "tillgate_describe_order", order_key="7") is None


def test_order_of_missing_plugin_names_it() -> None:
    """An order whose plugin is gone raises an error that names the plugin."""
    with pytest.raises(ConfigurationError, match="'pretix' owns an order but is not loaded"):
        call_owner("pretix", "tillgate_describe_order", order_key="7")


def test_misspelt_plugin_suggests_nearest_name(plug) -> None:  # type: ignore[no-untyped-def]
    """The error also lists the loaded shop plugins."""
    plug(Shop("A"), "bakery")
    plug(CannedGateway(), "bakkery-gateway")
    with pytest.raises(ConfigurationError) as wrong:
        call_owner("bakry", "tillgate_describe_order", order_key="7")
    assert re.fullmatch(
        r"plugin: 'bakry' owns .*: did you mean 'bakery'\? loaded: (?:.*, )?bakery(?:, .*)?",
        str(wrong.value),
    )
    assert "gateway" not in str(wrong.value)


def test_an_observer_that_raises_disturbs_nobody(plug, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    seen = []

    class Breaks:
        @hookimpl
        def tillgate_event(self, event: Event) -> None:
            raise RuntimeError("observer down")

    class Sees:
        @hookimpl
        def tillgate_event(self, event: Event) -> None:
            seen.append(event.name)

    class WantsNothing:
        @hookimpl
        def tillgate_event(self) -> None:
            seen.append("something")

    for observer in (Sees(), Breaks(), WantsNothing()):
        plug(observer)
    with caplog.at_level(logging.ERROR, "tillgate"):
        emit(Event(name="payment.paid", at=datetime.now(UTC)))
    assert sorted(seen) == ["payment.paid", "something"]
    assert "observer down" in caplog.text
