"""Careless variants of the scaffold's gateway plugin, each of which loses money, loses a payment or
leaks a secret: the kit's scenario catches each.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tillgate.errors import TillgateError
from tillgate.hooks import build_plugin_manager
from tillgate.scaffold import write_plugin
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.gateway_driver import GatewayDriver


class Careless(NamedTuple):
    """A variant: the scenario that must catch it, and texts of the plugin with their
    replacements.
    """

    scenario: str
    changes: dict[str, str]


_PAID = 'made = _ask(call, "POST", "/payments", asked)'
_REFUNDED = 'made = _ask(call, "POST", f"/payments/{number}/refunds", asked)'
_FOUND = 'found = _ask(call, "GET", f"/payments/{_number_of(call, transaction_no)}")'
_SIGNED = "if not any(hmac.compare_digest(signature, one) for one in signed):"
_IN_QUERY = """raw=found,
"""


def _except(line: str, error: str, instead: str, only: str = "True") -> dict[str, str]:
    """Let a plugin do something else when its request raises an error, perhaps only some."""
    return {
        line: f"try:\n        {line}\n    except {error} as error:\n"
        f"        if not ({only}):\n            raise\n        {instead}",
    }


_ERRORS = (
    "import httpx\n"
    "from tillgate.errors import GatewayError, NotSent, OutcomeUnknown, Refused, WrongCredentials"
)
VARIANTS = {
    "calls a rate-limited creation refused": Careless(
        "broken_creation_answers",
        _except(
            _PAID,
            "OutcomeUnknown",
            'raise Refused("429", str(error), 429) from None',
            only="error.http_status == 429",
        ),
    ),
    "calls a creation with a broken answer not sent": Careless(
        "broken_creation_answers",
        _except(
            _PAID,
            "OutcomeUnknown",
            'raise NotSent("pay", "x", str(error)) from None',
            only="'no JSON' in str(error)",
        ),
    ),
    "creates again after a server's error": Careless(
        "broken_creation_answers",
        _except(
            _PAID,
            "OutcomeUnknown",
            'asked["reference"] += "2"; ' + _PAID,
            only="error.http_status == 500",
        ),
    ),
    "calls a refund with a server's error not sent": Careless(
        "broken_refund_answers",
        _except(
            _REFUNDED,
            "OutcomeUnknown",
            'raise NotSent("refund", "x", str(error)) from None',
            only="error.http_status == 500",
        ),
    ),
    "follows a redirect of a refund": Careless(
        "broken_refund_answers",
        _except(
            _REFUNDED,
            "OutcomeUnknown",
            'raise Refused("404", "not found", 404) from None',
            only="error.http_status == 302",
        ),
    ),
    "calls a refund with a cut answer refused": Careless(
        "broken_refund_answers",
        _except(
            _REFUNDED,
            "OutcomeUnknown",
            'raise Refused("?", str(error), 400) from None',
            only="'ReadError' in str(error) or 'RemoteProtocolError' in str(error)",
        ),
    ),
    "calls a refund that timed out not sent": Careless(
        "slow_refund",
        _except(
            _REFUNDED,
            "OutcomeUnknown",
            'raise NotSent("refund", "x", str(error)) from None',
            only="'Timeout' in str(error)",
        ),
    ),
    "takes any answer to a refund for success": Careless(
        "broken_refund_answers",
        _except(
            _REFUNDED,
            "OutcomeUnknown",
            'made = {**asked, "number": "1", "status": "done"}',
            only="'no JSON' in str(error)",
        ),
    ),
    "takes a broken answer for an unknown payment": Careless(
        "broken_query_answers",
        _except(
            _FOUND,
            "GatewayError",
            'raise OrderNotFound("x", "not found", 404) from None',
            only="'no JSON' in str(error)",
        ),
    ),
    "takes a broken answer for an expired payment": Careless(
        "broken_query_answers",
        _except(
            _FOUND,
            "GatewayError",
            'found = {"reference": reference, "id": transaction_no, "status": "closed", '
            '"amount": 1, "currency": "EUR", "refunds": []}',
            only="'no JSON' in str(error)",
        ),
    ),
    "repeats what it asked about, not what was answered": Careless(
        "answer_about_another_payment",
        {
            'reference=found["reference"],\n            status': (
                "reference=reference,\n            status"
            ),
            'transaction_no=found["id"],': 'transaction_no=transaction_no or found["id"],',
        },
    ),
    "repeats the reference that it asked about": Careless(
        "answer_about_another_payment",
        {
            'reference=found["reference"],\n            status': (
                "reference=reference,\n            status"
            ),
        },
    ),
    "assumes the first currency of the account": Careless(
        "answer_without_currency",
        {
            'amount=amount_of(found["amount"], found["currency"]),\n'
            '            currency=found["currency"],': (
                'amount=amount_of(found["amount"], account.taken_currencies[0]),\n'
                "            currency=account.taken_currencies[0],"
            ),
        },
    ),
    "fills a missing currency in": Careless(
        "answer_without_currency",
        {_FOUND: f'{_FOUND}\n    found.setdefault("currency", "EUR")'},
    ),
    "remembers the amount that it asked for": Careless(
        "answer_without_amount",
        {
            _PAID: f'{_PAID}\n    _asked[request.reference] = asked["amount"]',
            _FOUND: f'{_FOUND}\n    found["amount"] = _asked[reference]',
            "def _refusal(": "_asked: dict[str, int] = {}\n\n\ndef _refusal(",
        },
    ),
    "takes an unknown status for paid": Careless(
        "strange_status",
        {"TransactionStatus.UNRECOGNISED)": "TransactionStatus.PAID)"},
    ),
    "takes an unknown status for failed": Careless(
        "strange_status",
        {"TransactionStatus.UNRECOGNISED)": "TransactionStatus.FAILED)"},
    ),
    "takes an unknown status of a refund for success": Careless(
        "strange_status",
        {
            'outcome=_OUTCOMES[refund["status"]],': (
                'outcome=_OUTCOMES.get(refund["status"], RefundOutcome.SUCCEEDED),'
            ),
        },
    ),
    "takes an unknown status of a refund for a failure": Careless(
        "strange_status",
        {
            'outcome=_OUTCOMES[refund["status"]],': (
                'outcome=_OUTCOMES.get(refund["status"], RefundOutcome.FAILED),'
            ),
        },
    ),
    "takes money on its way for paid": Careless(
        "money_on_its_way",
        {"TransactionStatus.PROCESSING": "TransactionStatus.PAID"},
    ),
    "takes money on its way for failed": Careless(
        "money_on_its_way",
        {"TransactionStatus.PROCESSING": "TransactionStatus.FAILED"},
    ),
    "does not know the word of a charge-back": Careless(
        "money_taken_back",
        {'"charged_back": TransactionStatus.REFUNDED': '"charged_back": TransactionStatus.PAID'},
    ),
    "keeps one token for all accounts": Careless(
        "wrong_credentials",
        {
            'f"Bearer {call.account.token.get_secret_value()}"': (
                'f"Bearer {_kept.setdefault(1, call.account.token.get_secret_value())}"'
            ),
            "def _refusal(": "_kept: dict[int, str] = {}\n\n\ndef _refusal(",
        },
    ),
    "takes missing rights for an unknown payment": Careless(
        "wrong_credentials",
        _except(_FOUND, "WrongCredentials", 'raise OrderNotFound("x", "not found", 404) from None'),
    ),
    "answers about the first refund that is listed": Careless(
        "lost_refund_that_was_not_done",
        {'if one["id"] == request.refund_id:': "if one:"},
    ),
    "finds a refund by its amount": Careless(
        "lost_refund_that_was_not_done",
        {'if one["id"] == request.refund_id:': 'if one["amount"] == request.minor_units:'},
    ),
    "sends a refund again when it is asked about it": Careless(
        "lost_refund_that_was_not_done",
        {
            'raise OrderNotFound("unknown", "no refund has the name", 404)': (
                "return tillgate_refund(account, request)"
            ),
        },
    ),
    "calls a lost refund not sent": Careless(
        "lost_refund_that_was_not_done",
        _except(_REFUNDED, "OutcomeUnknown", 'raise NotSent("refund", "x", "surely") from None'),
    ),
    "needs a number to refund": Careless(
        "refund_without_a_number",
        {
            "number = _number_of(call, request.transaction_no)\n    asked": (
                "number = request.transaction_no + ''\n    asked"
            ),
        },
    ),
    "refunds the newest payment without a number": Careless(
        "refund_without_a_number",
        {
            "number = _number_of(call, request.transaction_no)\n    asked": (
                "number = request.transaction_no or _newest[-1]\n    asked"
            ),
            _PAID: f'{_PAID}\n    _newest.append(made["id"])',
            "def _refusal(": "_newest: list[str] = []\n\n\ndef _refusal(",
        },
    ),
    "refunds units of any currency": Careless(
        "refund_in_another_currency",
        {
            '    asked = {\n        "id"': (
                '    paid = _ask(call, "GET", f"/payments/{number}")\n    asked = {\n        "id"'
            ),
            '"currency": request.currency,\n    }\n    made = _ask(call, "POST", f': (
                '"currency": paid["currency"],\n    }\n    made = _ask(call, "POST", f'
            ),
        },
    ),
    "refunds once for each amount": Careless(
        "partial_refunds",
        {'"id": request.refund_id,': '"id": f"{request.reference}-{request.amount}",'},
    ),
    "refunds again under a new name": Careless(
        "same_refund_id",
        {'"id": request.refund_id,': '"id": f"{request.refund_id}-{id(call)}-{call._until}",'},
    ),
    "believes a notification without a signature": Careless(
        "forged_notification",
        {_SIGNED: _SIGNED.replace("if not", "if signature and not")},
    ),
    "believes every notification of an account without secrets": Careless(
        "forged_notification",
        {_SIGNED: _SIGNED.replace("if not", "if secrets and not")},
    ),
    "believes a signature that was true once": Careless(
        "forged_notification",
        {
            _SIGNED: "_known.update({s: 1 for s in signed if s == signature})\n"
            "    if signature not in _known:",
            "def _refusal(": "_known: dict[bytes, int] = {}\n\n\ndef _refusal(",
        },
    ),
    "asks the gateway about a notification": Careless(
        "notification_is_a_hint",
        {
            "        event = json.loads(body)": (
                '        event = json.loads(body)\n        call = Call(account, "query", "x")\n'
                '        _ask(call, "GET", "/payments/" + event["id"])'
            ),
        },
    ),
    "drops the number of a notification and finds none": Careless(
        "notification_gives_the_number",
        {
            'Hint(reference=event["reference"], transaction_no=event["id"])': (
                'Hint(reference=event["reference"])'
            ),
            '    listed = _ask(call, "GET"': (
                '    raise AnswerNotUnderstood("no search")\n    listed = _ask(call, "GET"'
            ),
        },
    ),
    "says that there is no payment without a number": Careless(
        "lost_creation",
        {
            '    listed = _ask(call, "GET"': (
                '    raise OrderNotFound("x", "no number", 404)\n    listed = _ask(call, "GET"'
            ),
        },
    ),
    "closes a page by words alone": Careless(
        "closed_page",
        {
            'closed = _ask(call, "POST", f"/payments/{number}/close")': 'closed = {"status": "closed"}'
        },
    ),
    "calls a paid payment closed": Careless(
        "closed_page",
        {'("closed", "declined")': '("closed", "declined", "paid")'},
    ),
    "logs a derived token": Careless(
        "no_secret_in_any_text",
        {
            _PAID: "import hashlib, logging\n"
            "    token = account.token.get_secret_value().encode()\n"
            '    logging.debug("session %s", hashlib.sha256(token).hexdigest())\n'
            f"    {_PAID}",
        },
    ),
    "prints a token": Careless(
        "no_secret_in_any_text",
        {_PAID: f"print(account.token.get_secret_value())\n    {_PAID}"},
    ),
    "shows a wrong token in its error": Careless(
        "no_secret_in_any_text",
        _except(
            _FOUND,
            "WrongCredentials",
            'raise WrongCredentials("401", account.token.get_secret_value(), 401) from None',
        ),
    ),
    "leaves the request in the cause of an error": Careless(
        "no_secret_in_any_text",
        _except(
            _PAID,
            "OutcomeUnknown",
            'raise error from httpx.ReadError("x", request=httpx.Request("POST", "http://x", '
            'headers={"X-Key": account.token.get_secret_value()}))',
        ),
    ),
    "puts the token into the address of the page": Careless(
        "no_secret_in_any_text",
        {
            'payment_url=made["page"],': (
                'payment_url=made["page"] + "?t=" + account.token.get_secret_value(),'
            ),
        },
    ),
}


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, type[GatewayDriver]]]:
    """The source of the scaffold's plugin, and its driver."""
    folder = write_plugin("toy-pay", tmp_path_factory.mktemp("into"), is_gateway=True).folder
    with pytest.MonkeyPatch.context() as patch:
        for path in (folder, folder / "src"):
            patch.syspath_prepend(path)
        source = (folder / "src/tillgate_toy_pay/plugin.py").read_text("utf-8")
        driver = _module("toy_pay_driver", (folder / "tests/driver.py").read_text("utf-8"))
        yield source, driver.ToyPayDriver
    for name in ("tillgate_toy_pay", "tillgate_toy_pay.plugin", "toy_gateway"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def _module(name: str, source: str) -> Any:
    module = ModuleType(name)
    exec(compile(source, name, "exec"), vars(module))
    return module


def play(scenario: str, driver: type[GatewayDriver], plugin: Any) -> None:
    """Run a scenario on a plugin."""
    with driver() as gateway, pytest.MonkeyPatch.context() as patch:
        account = gateway.account()
        assert account is not None
        token = account.token.get_secret_value().encode()
        derived, secrets = hashlib.sha256(token).hexdigest(), gateway.secrets
        patch.setattr(gateway, "secrets", lambda: secrets() | {derived})
        manager = build_plugin_manager(entry_points=False)
        manager.register(plugin, name=gateway.plugin)
        patch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
        getattr(GatewayConformance(), f"test_{scenario}")(gateway)


@pytest.mark.parametrize("name", VARIANTS)
def test_careless_plugin_is_noticed(name: str, scaffold: tuple[str, type[GatewayDriver]]) -> None:
    source, driver = scaffold
    scenario, changes = VARIANTS[name]
    changed = source.replace("from tillgate import (", f"{_ERRORS}\nfrom tillgate import (", 1)
    for old, new in changes.items():
        assert changed.count(old) == 1, f"the plugin has {old!r} {changed.count(old)} times"
        changed = changed.replace(old, new)
    with pytest.raises((AssertionError, pytest.fail.Exception, TillgateError)):
        play(scenario, driver, _module("careless", changed))


def test_scaffold_plugin_is_careful(scaffold: tuple[str, type[GatewayDriver]]) -> None:
    """Every scenario that catches a variant holds on the original plugin."""
    source, driver = scaffold
    for scenario in sorted({one.scenario for one in VARIANTS.values()}):
        play(scenario, driver, _module("careful", source))


@pytest.mark.parametrize(
    ("operation", "scenario"),
    [("pay", "created_payment"), ("query", "paid_payment"), ("refund", "full_refund")],
)
def test_calls_that_match_nothing_are_named(
    operation: str,
    scenario: str,
    scaffold: tuple[str, type[GatewayDriver]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver whose proxy would never play a fault learns it, and which requests it passed on."""
    source, driver = scaffold
    monkeypatch.setitem(driver.__enter__.__globals__["_CALLS"], operation, "GET /v2/else")
    with pytest.raises(AssertionError, match=rf"seen no '{operation}'.*/payments"):
        play(scenario, driver, _module("careful", source))


def test_plugin_and_driver_are_short() -> None:
    root = Path(__file__).parents[2] / "src/tillgate/scaffold/gateway_template"
    lines = [
        len(path.read_text("utf-8").splitlines())
        for path in (root / "src/$package/plugin.py.tmpl", root / "tests/driver.py.tmpl")
    ]
    assert sum(lines) < 368
