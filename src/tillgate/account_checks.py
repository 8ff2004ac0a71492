"""The doctor checks that an account is right, without moving money."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pydantic import SecretStr

from tillgate import hooks
from tillgate.account import Account
from tillgate.configuration import Configured
from tillgate.errors import GatewayError, NotSent, OrderNotFound, TillgateError, WrongCredentials
from tillgate.hooks import Finding, examination
from tillgate.hooks.manager import IMPORTED_NAME
from tillgate.wire.messages import Transaction
from tillgate.wire.references import new_reference
from tillgate.wire.texts import described

__all__ = ["examine"]


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
        query = partial(hooks.query, deadline_seconds=deadline_seconds, attempts=attempts)
        found = [_queried(account, query)]
    return [*_settings(configured), _plugins(), *found]


def _found_by_plugin(
    account: Account,
    deadline_seconds: float | None,
    webhook_url: str | None,
) -> Sequence[Finding] | None:
    """Return the findings of a gateway plugin about its own account, or None where no plugin
    examines it.
    """
    try:
        return hooks.examine_account(
            account,
            online=True,
            deadline_seconds=deadline_seconds,
            webhook_url=webhook_url,
        )
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything
        return [_raised(error)]


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
    for name, value in account.options.items():
        shown = "set, not shown" if isinstance(value, SecretStr) else str(value)
        yield Finding(name=f"options.{name}", passed=True, finding=shown)
    yield Finding(
        name="dialect",
        passed=True,
        finding=f"{account.dialect.name}, served by the plugin {account.dialect.plugin!r}",
    )


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


def _queried(account: Account, query: Callable[[Account, str], Transaction]) -> Finding:
    """Ask for a payment that cannot exist, by the hooks, so that the plugins that wrap a query are
    examined too.
    """
    ask = _default if account.dialect.is_of_plugin else examination.examine
    try:
        return ask(account, query)
    except Exception as error:  # noqa: BLE001  # a plugin may raise anything
        return _raised(error)


def _raised(error: Exception) -> Finding:
    finding = f"a plugin raised {described(error)}: correct it, or remove it"
    return Finding(name="credentials", passed=False, finding=finding)


def _default(account: Account, query: Callable[[Account, str], Transaction]) -> Finding:
    """Return the answer to the query from the gateway of a plugin. The errors that name a fault of
    an account fail; only the plugin can judge any other answer.
    """
    reference = new_reference("DOCTOR")
    asked = f"asked for the payment {reference}, which cannot exist"

    def found(finding: str, *, passed: bool = False) -> Finding:
        return Finding(name="credentials", passed=passed, finding=finding)

    try:
        query(account, reference)
    except OrderNotFound as answer:
        return found(f"{asked}, and the gateway answered so: {answer}", passed=True)
    except WrongCredentials as answer:
        return found(f"the gateway does not know the account: {answer}: check its settings")
    except NotSent as error:
        return found(
            f"the gateway cannot be reached ({error.detail}): check base_url and the network",
        )
    except GatewayError as error:
        remedy = f"only the plugin {account.dialect.plugin!r} knows whether that is right"
        return found(f"{asked}, and the answer was {error}: {remedy}", passed=True)
    except TillgateError as error:
        return found(str(error))
    return found(f"{asked}, and the plugin {account.dialect.plugin!r} found one")
