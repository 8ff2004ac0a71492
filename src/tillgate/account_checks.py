"""The doctor checks that an account is right, without moving money."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from tillgate import hooks
from tillgate.account import Account
from tillgate.configuration import Configured
from tillgate.errors import (
    AnswerNotUnderstood,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    TillgateError,
    WrongCredentials,
)
from tillgate.hooks import Finding
from tillgate.hooks.manager import IMPORTED_NAME
from tillgate.wire.dialects import DIALECTS
from tillgate.wire.messages import Transaction
from tillgate.wire.references import new_reference
from tillgate.wire.texts import described

__all__ = ["examine"]

_STORE = "storeno"
_ANY_STORE = "1"
"""The store of a probe for an account that names none: the answer shows whether the path exists."""


def examine(
    configured: Configured,
    *,
    deadline_seconds: float | None = None,
    attempts: int | None = None,
    webhook_url: str | None = None,
) -> list[Finding]:
    """Check the account's settings, the plugins and the gateway, in this order.

    The first keywords bound the query, as in `Gateway.query`; `webhook_url` is the account's own
    address in a shop.
    """
    account = configured.account
    found = _found_by_plugin(account, deadline_seconds, webhook_url)
    if found is None:
        found = [
            _credentials(
                account,
                partial(hooks.query, deadline_seconds=deadline_seconds, attempts=attempts),
            ),
        ]
    return [*_settings(configured), _plugins(), *found]


def _found_by_plugin(
    account: Account,
    deadline_seconds: float | None,
    webhook_url: str | None,
) -> Sequence[Finding] | None:
    """Return what a gateway plugin finds about its own account, or None where no plugin examines
    it.
    """
    try:
        return hooks.examine_account(
            account,
            online=True,
            deadline_seconds=deadline_seconds,
            webhook_url=webhook_url,
        )
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything
        return [
            Finding(
                name="credentials",
                passed=False,
                finding=f"a plugin raised {described(error)}: correct it, or remove it",
            ),
        ]


def _settings(configured: Configured) -> Iterator[Finding]:
    account, sources = configured.account, configured.sources
    kind = "a sandbox: http is allowed, no real money" if account.sandbox else "live: only https"
    yield Finding(
        name="base_url",
        passed=True,
        finding=f"{account.base_url} ({sources.get('base_url', 'dialect')}); {kind}",
    )
    if account.merchant_no:
        yield Finding(
            name="merchant_no",
            passed=True,
            finding=f"{account.merchant_no} ({sources.get('merchant_no', 'settings')})",
        )
    yield Finding(
        name="token",
        passed=True,
        finding=f"set ({sources.get('token', 'settings')}), not shown",
    )
    if account.store_no:
        yield Finding(
            name="store_no",
            passed=True,
            finding=f"{account.store_no} ({sources.get('store_no', 'settings')})",
        )
    details = (
        f": {account.dialect.query_path}, {account.dialect.encoding} bodies"
        if account.dialect.name in DIALECTS
        else ""
    )
    yield Finding(name="dialect", passed=True, finding=f"{account.dialect.name}{details}")


def _plugins() -> Finding:
    try:
        manager = hooks.plugin_manager()
        plugins = [(name, plugin) for name, plugin in manager.list_name_plugin() if plugin]
    except TillgateError as error:
        return Finding(name="plugins", passed=False, finding=str(error))
    idle = [
        name
        for name, plugin in plugins
        if name != IMPORTED_NAME and not manager.get_hookcallers(plugin)
    ]
    if idle:
        return Finding(
            name="plugins",
            passed=False,
            finding=f"{', '.join(idle)} implements no hook: is @hookimpl missing?",
        )
    return Finding(name="plugins", passed=True, finding=", ".join(name for name, _ in plugins))


def _credentials(account: Account, query: Callable[[Account, str], Transaction]) -> Finding:
    reference = new_reference("DOCTOR")

    def failed(finding: str) -> Finding:
        return Finding(name="credentials", passed=False, finding=finding)

    try:
        query(account, reference)
    except OrderNotFound as answer:
        return Finding(
            name="credentials",
            passed=True,
            finding=f"a signed query was understood: {answer.ret_code} {answer.ret_msg!r}, as it "
            "must be",
        )
    except WrongCredentials as answer:
        if answer.ret_code in account.dialect.rights_codes:
            return failed(
                f"the account has no rights ({answer.ret_code} {answer.ret_msg!r}): check "
                "merchant_no, and its rights",
            )
        return failed(
            f"the token does not fit the merchant number ({answer.ret_code} {answer.ret_msg!r}): "
            "check merchant_no and token",
        )
    except Refused as answer:
        if _STORE in answer.ret_msg.lower() and account.dialect.sends("query", "storeNo"):
            return failed(
                f"the merchant has no store {account.store_no} ({answer.ret_code} "
                f"{answer.ret_msg!r}): "
                "check store_no (--store-no, TILLGATE_STORE_NO), which the service issued",
            )
        if answer.http_status == 404 and (preset := _preset_that_answers(account, query)):
            return failed(
                f"the gateway has no path {account.dialect.query_path}: set dialect to "
                f"{preset!r}, whose paths it knows",
            )
        return failed(
            f"the gateway refused a signed query with {answer.ret_code} {answer.ret_msg!r}: check "
            "merchant_no and token",
        )
    except (NotSent, OutcomeUnknown) as error:
        return failed(
            f"the gateway cannot be reached ({error.detail}): check base_url and the network",
        )
    except AnswerNotUnderstood as error:
        if error.is_overload:
            return failed(
                f"the gateway is out of order ({error}): look again later; if it has never "
                "answered, check base_url",
            )
        if error.http_status == 404 and (preset := _preset_that_answers(account, query)):
            return failed(
                f"the gateway has no path {account.dialect.query_path}: set dialect to "
                f"{preset!r}, whose paths it knows",
            )
        return failed(f"{error}: look again later, and check base_url and dialect if it stays so")
    except TillgateError as error:
        return failed(str(error))
    except Exception as error:  # noqa: BLE001  # the project's address configuration may raise anything
        return failed(
            f"a plugin raised {described(error)}: correct or remove it (see `tillgate plugins`)",
        )
    return failed(
        f"the gateway found {reference}, which cannot exist: this is not the gateway of the "
        "interface",
    )


def _preset_that_answers(
    account: Account,
    query: Callable[[Account, str], Transaction],
) -> str | None:
    """Return the name of another preset whose query path the gateway knows, or None."""
    for name, dialect in DIALECTS.items():
        if dialect.query_path != account.dialect.query_path:
            with suppress(Exception):  # the first answer is the one to report
                store_no = account.store_no or _ANY_STORE
                other = account.model_copy(
                    update={
                        "dialect": dialect,
                        "store_no": store_no,
                        "currencies": (),
                        "methods": (),
                    },
                )
                try:
                    query(other, new_reference("DOCTOR"))
                except Refused as answer:  # with a code of its own: the gateway knows the path
                    if answer.http_status != 404:
                        return name
    return None
