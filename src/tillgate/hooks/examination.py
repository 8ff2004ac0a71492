"""The examination of an account of the built-in wire: a signed query for a payment that cannot
exist.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from tillgate.account import Account
from tillgate.errors import (
    AnswerNotUnderstood,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    TillgateError,
    WrongCredentials,
)
from tillgate.hooks.values import Finding
from tillgate.wire.dialects import DIALECTS, Dialect
from tillgate.wire.messages import Transaction
from tillgate.wire.references import new_reference

__all__ = ["examine"]

_STORE: Final = "storeno"
_ANY_STORE: Final = "1"
"""The store of a probe for an account that names none: the answer shows whether the path exists."""


def examine(account: Account, query: Callable[[Account, str], Transaction]) -> Finding:
    """Return whether the gateway understands a signed query of the account, or the fault."""
    dialect = account.dialect
    assert isinstance(dialect, Dialect)  # as the adapter serves no other
    reference = new_reference("DOCTOR")
    preset_that_answers = partial(_preset_that_answers, account, query, dialect.query_path)

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
        if answer.ret_code in dialect.rights_codes:
            return failed(
                f"the account has no rights ({answer.ret_code} {answer.ret_msg!r}): check "
                "merchant_no, and its rights",
            )
        return failed(
            f"the token does not fit the merchant number ({answer.ret_code} {answer.ret_msg!r}): "
            "check merchant_no and token",
        )
    except Refused as answer:
        if _STORE in answer.ret_msg.lower() and dialect.sends("query", "storeNo"):
            return failed(
                f"the merchant has no store {account.store_no} ({answer.ret_code} "
                f"{answer.ret_msg!r}): "
                "check store_no (--store-no, TILLGATE_STORE_NO), which the service issued",
            )
        if answer.http_status == 404 and (preset := preset_that_answers()):
            return failed(
                f"the gateway has no path {dialect.query_path}: set dialect to "
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
        if error.http_status == 404 and (preset := preset_that_answers()):
            return failed(
                f"the gateway has no path {dialect.query_path}: set dialect to "
                f"{preset!r}, whose paths it knows",
            )
        return failed(f"{error}: look again later, and check base_url and dialect if it stays so")
    except TillgateError as error:
        return failed(str(error))
    return failed(
        f"the gateway found {reference}, which cannot exist: this is not the gateway of the "
        "interface",
    )


def _preset_that_answers(
    account: Account,
    query: Callable[[Account, str], Transaction],
    asked: str,
) -> str | None:
    """Return the name of another preset with a query path that the gateway knows, or None."""
    for name, preset in DIALECTS.items():
        if preset.query_path != asked:
            with suppress(Exception):  # the first answer is the one to report
                store_no = account.store_no or _ANY_STORE
                other = account.model_copy(
                    update={
                        "dialect": preset,
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
