"""Every way in which the emulated gateway can misbehave, as data, and the one place that decides
when it does.

A fault strikes at an *occasion*: one of the three operations, or a moment in the life of a
transaction. Three sources call for a fault, in this order: the control API (planned), the amount
(magic), and chance (`Options.faults`, drawn from the seed).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Literal

from .errors import UnknownOption, WrongOption

Occasion = Literal["pay", "query", "refund", "created", "decision", "callback", "notification"]
Stage = Literal["instead", "damage", "moment"]
MagicOccasion = Occasion | Literal["carrier"]
"""The occasion of a magic amount; the *carrier* is the call that carries the amount."""

_CALLS: tuple[Occasion, ...] = ("pay", "query", "refund")


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave: *instead* of the work, as *damage* to the answer after it, or at a
    *moment* outside the three calls.

    `magic` are the cents of its magic amounts, each with its occasion and perhaps a number of
    times, as in `Magic`.
    """

    name: str
    stage: Stage
    occasions: tuple[Occasion, ...]
    summary: str
    magic: tuple[tuple[int, MagicOccasion] | tuple[int, MagicOccasion, int], ...]


_ALL = (
    Fault(
        "lost_request",
        "instead",
        _CALLS,
        "The connection closes, nothing was done.",
        ((1, "carrier"),),
    ),
    Fault(
        "lost_response",
        "damage",
        _CALLS,
        "The work is done, the connection closes without an answer.",
        ((2, "carrier"), (34, "query", 3)),
    ),
    Fault(
        "delay",
        "damage",
        _CALLS,
        "The answer comes after `delay_seconds`.",
        ((3, "carrier"), (35, "query", 3)),
    ),
    Fault(
        "server_error",
        "instead",
        _CALLS,
        "HTTP 503, nothing was done.",
        ((4, "carrier"), (31, "query", 3)),
    ),
    Fault(
        "server_error_done",
        "damage",
        _CALLS,
        "HTTP 502, although the work is done.",
        ((5, "carrier"),),
    ),
    Fault(
        "rate_limited",
        "instead",
        _CALLS,
        "HTTP 429 with Retry-After, nothing was done.",
        ((6, "carrier"), (32, "query", 3)),
    ),
    Fault(
        "broken_json",
        "damage",
        _CALLS,
        "The JSON of the answer stops in the middle.",
        ((7, "carrier"), (33, "query", 3)),
    ),
    Fault("html_body", "damage", _CALLS, "HTTP 200 with an HTML page.", ((8, "carrier"),)),
    Fault("redirect", "damage", _CALLS, "HTTP 302 to another address.", ((9, "carrier"),)),
    Fault("json_list", "damage", _CALLS, "The answer is a JSON list.", ((11, "carrier"),)),
    Fault(
        "missing_ret_code",
        "damage",
        _CALLS,
        "The envelope has no ret_code.",
        ((12, "carrier"),),
    ),
    Fault("numeric_ret_code", "damage", _CALLS, "ret_code is a JSON number.", ((13, "carrier"),)),
    Fault(
        "huge_body",
        "damage",
        _CALLS,
        "The answer is `huge_body_bytes` long.",
        ((14, "carrier"),),
    ),
    Fault(
        "slow_drip",
        "damage",
        _CALLS,
        "The answer comes byte by byte, `drip_pause_seconds` apart.",
        ((15, "carrier"),),
    ),
    Fault(
        "cut",
        "damage",
        _CALLS,
        "The connection closes after `cut_after_bytes` bytes (-1: anywhere).",
        ((16, "carrier"),),
    ),
    Fault("empty_body", "damage", _CALLS, "HTTP 200 with nothing in it.", ((17, "carrier"),)),
    Fault(
        "system_error",
        "damage",
        _CALLS,
        "ret_code 000000, although the work is done.",
        ((18, "carrier"),),
    ),
    Fault(
        "bad_signature",
        "damage",
        _CALLS,
        "The answer carries a wrong verifySign.",
        ((19, "carrier"), (37, "query", 3)),
    ),
    Fault(
        "refused",
        "instead",
        ("pay", "refund"),
        "The gateway refuses with a code of its table.",
        ((21, "carrier"),),
    ),
    Fault(
        "unknown_code",
        "damage",
        _CALLS,
        "An unknown ret_code, although the work is done.",
        ((22, "carrier"),),
    ),
    Fault(
        "denied",
        "instead",
        ("query",),
        "The query says 000022 order not found although the order exists.",
        ((36, "query", 3),),
    ),
    Fault(
        "payment_page_missing",
        "damage",
        ("pay",),
        "No cashierUrl in the answer.",
        ((23, "pay"),),
    ),
    Fault(
        "payment_page_relative",
        "damage",
        ("pay",),
        "cashierUrl is a path without a host.",
        ((24, "pay"),),
    ),
    Fault(
        "other_reference",
        "damage",
        ("pay", "query"),
        "The answer names another reference.",
        ((26, "pay"), (51, "query")),
    ),
    Fault(
        "wrong_amount",
        "damage",
        ("pay", "query"),
        "The answer names a cent more.",
        ((27, "pay"), (43, "query")),
    ),
    Fault(
        "amount_number",
        "damage",
        ("pay", "query"),
        "The amount is a JSON number.",
        ((28, "pay"),),
    ),
    Fault("amount_text", "damage", ("pay", "query"), "The amount is text.", ((44, "query"),)),
    Fault(
        "missing_amount",
        "damage",
        ("pay", "query"),
        "No amount in the answer.",
        ((42, "query"),),
    ),
    Fault("wrong_currency", "damage", ("pay", "query"), "currency is EUR.", ((45, "query"),)),
    Fault(
        "missing_currency",
        "damage",
        ("pay", "query"),
        "No currency in the answer.",
        ((46, "query"),),
    ),
    Fault(
        "wrong_settle_currency",
        "damage",
        ("pay", "query"),
        "settleCurrency is EUR.",
        ((47, "query"),),
    ),
    Fault(
        "wrong_transaction_no",
        "damage",
        ("pay", "query"),
        "The answer names another transactionNo.",
        ((48, "query"),),
    ),
    Fault(
        "unknown_status",
        "damage",
        ("query",),
        "An unknown status word.",
        ((41, "query"),),
    ),
    Fault(
        "notification_forged",
        "moment",
        ("created",),
        "A forged notification says success before the payment.",
        ((67, "created"),),
    ),
    Fault(
        "late_money",
        "moment",
        ("decision",),
        "Paying first fails; the money comes after `late_seconds`.",
        ((71, "decision"),),
    ),
    Fault(
        "slow_money",
        "moment",
        ("decision",),
        "The money is under way for `slow_seconds`, and then comes.",
        ((74, "decision"),),
    ),
    Fault(
        "slow_failure",
        "moment",
        ("decision",),
        "The money is under way for `slow_seconds`, and then fails.",
        ((77, "decision"),),
    ),
    Fault(
        "voucher",
        "moment",
        ("decision",),
        "The payment page becomes a voucher, to be paid there within `slow_seconds`.",
        ((76, "decision"),),
    ),
    Fault(
        "raw_macros",
        "moment",
        ("callback",),
        "The shopper comes back with the macros unreplaced.",
        ((72, "callback"),),
    ),
    Fault(
        "no_return",
        "moment",
        ("callback",),
        "The shopper is not sent back.",
        ((73, "callback"),),
    ),
    Fault(
        "notification_missing",
        "moment",
        ("notification",),
        "The notification is never sent.",
        ((61, "notification"),),
    ),
    Fault(
        "notification_late",
        "moment",
        ("notification",),
        "The first notification comes after `late_seconds`.",
        ((62, "notification"),),
    ),
    Fault(
        "notification_duplicate",
        "moment",
        ("notification",),
        "The notification is sent twice simultaneously.",
        ((63, "notification"),),
    ),
    Fault(
        "notification_reordered",
        "moment",
        ("notification",),
        "An older notification, saying pending, comes after this one.",
        ((64, "notification"),),
    ),
    Fault(
        "notification_bad_signature",
        "moment",
        ("notification",),
        "The notification is true, its signature is wrong.",
        ((65, "notification"),),
    ),
    Fault(
        "notification_wrong_amount",
        "moment",
        ("notification",),
        "The notification names a cent more.",
        ((66, "notification"),),
    ),
)
FAULTS: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in _ALL})


@dataclass(frozen=True, slots=True)
class Magic:
    """The fault of one amount, so many `times` (0: always).

    The amount is `MAGIC_DOLLARS` and so many cents: 1301 of the smallest unit of any currency,
    which is KRW 1301 or KWD 1.301.
    """

    cents: int
    fault: str
    occasion: MagicOccasion
    times: int = 0


MAGIC_DOLLARS = 13
_ROWS = sorted(
    (Magic(cents, fault.name, *rest) for fault in _ALL for cents, *rest in fault.magic),
    key=lambda row: row.cents,
)
MAGIC: Mapping[int, Magic] = MappingProxyType(
    {MAGIC_DOLLARS * 100 + row.cents: row for row in _ROWS},
)


def _known(key: str, name: str) -> Fault:
    if name not in FAULTS:
        raise UnknownOption(key, *difflib.get_close_matches(name, FAULTS, n=1))
    return FAULTS[name]


def check_probabilities(faults: Mapping[str, float]) -> None:
    """Raise for a fault that does not exist, cannot strike at the given occasion, or has no
    probability from 0 to 1.
    """
    for key, probability in faults.items():
        occasion, _, name = key.rpartition(".")
        fault = _known(key, name)
        if occasion and occasion not in fault.occasions:
            raise WrongOption(
                key,
                probability,
                f"one of the occasions {', '.join(fault.occasions)}",
            )
        if not isinstance(probability, (int, float)) or not 0 <= probability <= 1:
            raise WrongOption(key, probability, "a probability from 0 to 1")


@dataclass(slots=True)
class Planned:
    """A fault that the control API has planned: at the next `times` occasions, of one reference or
    of any.
    """

    fault: Fault
    occasion: Occasion | None = None
    reference: str | None = None
    times: int = 1

    def fits(self, occasion: Occasion, reference: str) -> bool:
        """Return whether this occasion is one that the plan means."""
        return (
            occasion in self.fault.occasions
            and self.occasion in (None, occasion)
            and self.reference in (None, reference)
        )


class FaultPlan:
    """Decides at each occasion whether a fault strikes, and which: at most one."""

    def __init__(self, probabilities: Mapping[str, float], random: Random) -> None:
        self._random = random
        self.planned: list[Planned] = []
        self.use(probabilities)

    def use(self, probabilities: Mapping[str, float]) -> None:
        """Set other probabilities; planned faults stay planned."""
        self._chances: dict[Occasion, list[tuple[Fault, float]]] = {}
        for key, probability in sorted(probabilities.items()):
            wanted, _, name = key.rpartition(".")
            for occasion in FAULTS[name].occasions:
                if probability and wanted in ("", occasion):
                    self._chances.setdefault(occasion, []).append((FAULTS[name], probability))

    def plan(
        self,
        name: str,
        *,
        occasion: str | None = None,
        reference: str | None = None,
        times: int = 1,
    ) -> Planned:
        """Plan a fault for the next `times` fitting occasions."""
        fault = _known(name, name)
        fitting: Occasion | None = next((one for one in fault.occasions if one == occasion), None)
        if occasion is not None and fitting is None:
            raise WrongOption(name, occasion, f"one of the occasions {', '.join(fault.occasions)}")
        if times < 1:
            raise WrongOption(name, times, "one time or more")
        planned = Planned(fault, fitting, reference, times)
        self.planned.append(planned)
        return planned

    def choose(self, occasion: Occasion, reference: str, magic: Fault | None) -> Fault | None:
        """Return the fault that strikes now, if any."""
        for planned in self.planned:
            if planned.fits(occasion, reference):
                planned.times -= 1
                if not planned.times:
                    self.planned.remove(planned)
                return planned.fault
        if magic is not None:
            return magic
        for fault, probability in self._chances.get(occasion, ()):
            if self._random.random() < probability:
                return fault
        return None
