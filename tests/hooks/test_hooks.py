"""The hooks: what can be plugged in without touching the core, and what a bad plugin cannot
break.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import ClassVar

import httpx
import pluggy
import pytest

from tillgate import (
    Account,
    AsyncGateway,
    ConfigurationError,
    CreatedPayment,
    Gateway,
    GatewayProfile,
    InvalidRequest,
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
    """Wraps whoever answers."""

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


class RoutesPaypalToSecondAccount:
    """Sends one payment method's payments through another account, by the built-in adapter."""

    @hookimpl(tryfirst=True)
    def tillgate_pay(
        self,
        account: Account,
        request: PaymentRequest,
        deadline_seconds: float | None,
    ) -> CreatedPayment | None:
        if request.method != "paypal" or account == SECOND:
            return None
        answer: CreatedPayment = plugin_manager().hook.tillgate_pay(
            account=SECOND,
            request=request,
            deadline_seconds=deadline_seconds,
        )
        return answer


@pytest.fixture
def plug() -> Iterator[object]:
    """Register plugins for one test."""
    registered: list[object] = []

    def register(plugin: object, name: str | None = None) -> object:
        plugin_manager().register(plugin, name=name)
        registered.append(plugin)
        return plugin

    yield register
    for plugin in registered:
        plugin_manager().unregister(plugin)


def test_a_canned_gateway_can_be_plugged_in(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway())
    assert hooks.pay(FIRST, request()).transaction_no == "T-1"
    assert hooks.query(FIRST, "ANY").status is TransactionStatus.PENDING


def test_logging_can_be_wrapped_around_whoever_answers(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway())
    log = plug(LogsCalls())
    hooks.pay(FIRST, request())
    assert log.seen == ["pay 100017-7Q2MZK4RXW3DA with 1", "got T-1"]


def test_a_method_can_be_routed_to_a_second_account(plug) -> None:  # type: ignore[no-untyped-def]
    plug(CannedGateway())
    plug(RoutesPaypalToSecondAccount())
    assert hooks.pay(FIRST, request("paypal")).transaction_no == "T-2"
    assert hooks.pay(FIRST, request("alipay")).transaction_no == "T-1"


def test_the_built_in_adapter_answers_with_a_gateway_of_its_own_per_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_a_core_without_any_answering_plugin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_gateway_whose_plugin_forgets_its_answer_leaves_the_outcome_unknown_and_tillgates_own_adapter_stays_out_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
def test_i6_a_refund_that_a_plugin_spoils_is_unknown_and_never_queued_again(  # type: ignore[no-untyped-def]
    plug,
    faulty: type,
) -> None:
    plug(CannedRefund())
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
def test_i6_a_plugins_own_error_after_sending_never_passes_for_not_sent_or_refused(  # type: ignore[no-untyped-def]
    plug,
    faulty: type,
) -> None:
    sent: list[str] = []
    plug(refunding(sent))
    plug(faulty())
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert decide_refund(caught.value) is RefundStatus.UNKNOWN
    assert len(sent) == 1


def test_i6_a_plugin_that_sends_and_forgets_to_return_does_not_send_twice(plug) -> None:  # type: ignore[no-untyped-def]
    sent: list[str] = []
    adapter = refunding(sent)

    class SendsAndForgets:
        @hookimpl(tryfirst=True)
        def tillgate_refund(self, request: RefundRequest) -> None:
            adapter.tillgate_refund(request)  # type: ignore[attr-defined]

    plug(adapter)
    plug(SendsAndForgets())
    with pytest.raises(OutcomeUnknown, match="sent it already"):
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert len(sent) == 1


@contextmanager
def answering_asynchronously(answer: httpx.Response | Exception) -> Iterator[list[str]]:
    """Let AsyncGateway get this answer; yield what it sends."""
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


def test_i6_what_a_plugin_sends_with_async_gateway_is_not_sent_again_by_the_built_in_adapter(  # type: ignore[no-untyped-def]
    plug,
) -> None:
    class LosesTheAnswer:
        @hookimpl(tryfirst=True)
        def tillgate_pay(self, request: PaymentRequest) -> None:
            with suppress(OutcomeUnknown):
                asyncio.run(pay_asynchronously(request))

        @hookimpl(tryfirst=True)
        def tillgate_refund(self, request: RefundRequest) -> None:
            with suppress(OutcomeUnknown):
                asyncio.run(refund_asynchronously(request))

    plug(LosesTheAnswer())
    with answering_asynchronously(httpx.ReadError("cut")) as sent:
        with pytest.raises(OutcomeUnknown, match="sent it already"):
            hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
        with pytest.raises(OutcomeUnknown, match="sent it already"):
            hooks.pay(FIRST, request())
    assert len(sent) == 2


def test_i6_a_plugin_that_sent_with_async_gateway_cannot_deny_it(plug) -> None:  # type: ignore[no-untyped-def]
    class Denies:
        @hookimpl(tryfirst=True)
        def tillgate_refund(self, request: RefundRequest) -> None:
            asyncio.run(refund_asynchronously(request))
            raise NotSent("refund", request.reference, "my queue is full")

    plug(Denies())
    answer = httpx.Response(200, json={"ret_code": "000100", "ret_msg": "refund success"})
    with (
        answering_asynchronously(answer) as sent,
        pytest.raises(OutcomeUnknown, match="my queue is full"),
    ):
        hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
    assert len(sent) == 1


def test_i6_a_refund_that_a_plugins_own_task_is_still_sending_is_not_sent_beside_it(plug) -> None:  # type: ignore[no-untyped-def]
    async def twice(request: RefundRequest) -> list[Refunded | BaseException]:
        return await asyncio.gather(
            *(refund_asynchronously(request) for _ in range(2)),
            return_exceptions=True,
        )

    class Hedges:
        @hookimpl(tryfirst=True)
        def tillgate_refund(self, request: RefundRequest) -> Refunded | None:
            done = asyncio.run(twice(request))
            return next((one for one in done if isinstance(one, Refunded)), None)

    plug(Hedges())
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


def test_a_refusal_and_an_unsent_request_reach_the_caller_as_they_are(plug) -> None:  # type: ignore[no-untyped-def]
    for error in (NotSent("refund", "A-1", "connection refused"), Refused("000020", "no", 400)):

        class Fails:
            @hookimpl(tryfirst=True)
            def tillgate_refund(self, error: BaseException = error) -> None:
                raise error

        failing = plug(Fails())
        with pytest.raises(type(error)):
            hooks.refund(FIRST, RefundRequest(reference="A-1", currency="USD", amount="2.50"))
        plugin_manager().unregister(failing)
        plugin_manager().register(failing)


def test_a_plugin_with_an_unknown_hook_is_refused_by_name() -> None:
    class Misspelt:
        @hookimpl
        def tillgate_payment_payed(self) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match=r"'Misspelt' .* hook 'tillgate_payment_payed': did you mean "
        r"'tillgate_payment_paid'\?",
    ):
        build_plugin_manager(Misspelt(), entry_points=False)


def test_a_hook_that_would_never_run_is_refused_by_name() -> None:
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


def test_what_is_marked_under_another_name_runs_and_so_does_a_wrapper() -> None:
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


def test_a_plugin_with_an_unknown_argument_is_refused_by_name() -> None:
    class Misspelt:
        @hookimpl
        def tillgate_pay(self, acount: Account) -> None: ...

    with pytest.raises(ConfigurationError, match="acount"):
        build_plugin_manager(Misspelt(), entry_points=False)


def test_an_installed_plugin_that_cannot_be_imported_is_an_error_that_says_why(
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


def test_an_installed_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_truth_value_is_no_reason_not_to_be_payable(truth: bool) -> None:
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


def test_only_the_plugin_that_owns_an_order_is_asked(plug) -> None:  # type: ignore[no-untyped-def]
    plug(Shop("A"), "shop-a")
    plug(Shop("B"), "shop-b")
    described = call_owner("shop-a", "tillgate_describe_order", order_key="7")
    assert described.number == "A-7"
    assert described.payable
    assert call_owner("shop-b", "tillgate_describe_order", order_key="7").number == "B-7"


def test_an_owner_without_the_hook_answers_none_whoever_else_has_it(plug) -> None:  # type: ignore[no-untyped-def]
    plug(Shop("A"), "shop-a")
    plug(CannedGateway(), "no-shop")
    assert call_owner("no-shop", "tillgate_describe_order", order_key="7") is None


def test_an_order_whose_plugin_is_gone_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match="'pretix' owns an order but is not loaded"):
        call_owner("pretix", "tillgate_describe_order", order_key="7")


def test_a_misspelt_plugin_is_told_the_loaded_shop_plugins_and_the_nearest(plug) -> None:  # type: ignore[no-untyped-def]
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
