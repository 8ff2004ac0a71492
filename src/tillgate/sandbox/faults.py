"""Every way in which the emulated gateway can misbehave, as data, and the one place that decides when it does.

A fault strikes at an *occasion*: one of the three operations, or a moment in the life of a transaction. Three sources call for a fault, in
this order: the control API (planned), the amount (magic), and chance (`Options.faults`, drawn from the seed).
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

_CALLS: tuple[Occasion, ...] = ("pay", "query", "refund")


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave: *instead* of the work, as *damage* to the answer after it, or at a *moment* outside the three calls."""

    name: str
    stage: Stage
    occasions: tuple[Occasion, ...]
    summary: str


_ALL = (
    Fault("lost_request", "instead", _CALLS, "The connection closes, nothing was done."),
    Fault("lost_response", "damage", _CALLS, "The work is done, the connection closes without an answer."),
    Fault("delay", "damage", _CALLS, "The answer comes after `delay_seconds`."),
    Fault("server_error", "instead", _CALLS, "HTTP 503, nothing was done."),
    Fault("server_error_done", "damage", _CALLS, "HTTP 502, although the work is done."),
    Fault("rate_limited", "instead", _CALLS, "HTTP 429 with Retry-After, nothing was done."),
    Fault("broken_json", "damage", _CALLS, "The JSON of the answer stops in the middle."),
    Fault("html_body", "damage", _CALLS, "HTTP 200 with an HTML page."),
    Fault("redirect", "damage", _CALLS, "HTTP 302 to another address."),
    Fault("json_list", "damage", _CALLS, "The answer is a JSON list."),
    Fault("missing_ret_code", "damage", _CALLS, "The envelope has no ret_code."),
    Fault("numeric_ret_code", "damage", _CALLS, "ret_code is a JSON number."),
    Fault("huge_body", "damage", _CALLS, "The answer is `huge_body_bytes` long."),
    Fault("slow_drip", "damage", _CALLS, "The answer comes byte by byte, `drip_pause_seconds` apart."),
    Fault("cut", "damage", _CALLS, "The connection closes after `cut_after_bytes` bytes (-1: anywhere)."),
    Fault("empty_body", "damage", _CALLS, "HTTP 200 with nothing in it."),
    Fault("system_error", "damage", _CALLS, "ret_code 000000, although the work is done."),
    Fault("bad_signature", "damage", _CALLS, "The answer carries a wrong verifySign."),
    Fault("refused", "instead", ("pay", "refund"), "The gateway refuses with a code of its table."),
    Fault("unknown_code", "damage", _CALLS, "A ret_code that nobody knows, although the work is done."),
    Fault("denied", "instead", ("query",), "The query says 000022 order not found although the order exists."),
    Fault("payment_page_missing", "damage", ("pay",), "No cashierUrl in the answer."),
    Fault("payment_page_relative", "damage", ("pay",), "cashierUrl is a path without a host."),
    Fault("other_reference", "damage", ("pay", "query"), "The answer names another reference."),
    Fault("wrong_amount", "damage", ("pay", "query"), "The answer names a cent more."),
    Fault("amount_number", "damage", ("pay", "query"), "The amount is a JSON number."),
    Fault("amount_text", "damage", ("pay", "query"), "The amount is text."),
    Fault("missing_amount", "damage", ("pay", "query"), "No amount in the answer."),
    Fault("wrong_currency", "damage", ("pay", "query"), "currency is EUR."),
    Fault("missing_currency", "damage", ("pay", "query"), "No currency in the answer."),
    Fault("wrong_settle_currency", "damage", ("pay", "query"), "settleCurrency is EUR."),
    Fault("wrong_transaction_no", "damage", ("pay", "query"), "The answer names another transactionNo."),
    Fault("unknown_status", "damage", ("query",), "A status word that nobody knows."),
    Fault("notification_forged", "moment", ("created",), "A forged notification says success before anybody paid."),
    Fault("late_money", "moment", ("decision",), "Paying first fails; the money comes after `late_seconds`."),
    Fault("raw_macros", "moment", ("callback",), "The shopper comes back with the macros unreplaced."),
    Fault("no_return", "moment", ("callback",), "The shopper is not sent back."),
    Fault("notification_missing", "moment", ("notification",), "The notification is never sent."),
    Fault("notification_late", "moment", ("notification",), "The first notification comes after `late_seconds`."),
    Fault("notification_duplicate", "moment", ("notification",), "The notification is sent twice at once."),
    Fault("notification_reordered", "moment", ("notification",), "An older notification, saying pending, comes after this one."),
    Fault("notification_bad_signature", "moment", ("notification",), "The notification is true, its signature is wrong."),
    Fault("notification_wrong_amount", "moment", ("notification",), "The notification names a cent more."),
)
FAULTS: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in _ALL})


@dataclass(frozen=True, slots=True)
class Magic:
    """The fault of one amount, so many `times` (0: always); the occasion *carrier* is the call that carries the amount.

    The amount is `MAGIC_DOLLARS` and so many cents: 1301 of the smallest unit of any currency, which is KRW 1301 or KWD 1.301.
    """

    cents: int
    fault: str
    occasion: Occasion | Literal["carrier"]
    times: int = 0


MAGIC_DOLLARS = 13
_TABLE = (
    Magic(1, "lost_request", "carrier"),
    Magic(2, "lost_response", "carrier"),
    Magic(3, "delay", "carrier"),
    Magic(4, "server_error", "carrier"),
    Magic(5, "server_error_done", "carrier"),
    Magic(6, "rate_limited", "carrier"),
    Magic(7, "broken_json", "carrier"),
    Magic(8, "html_body", "carrier"),
    Magic(9, "redirect", "carrier"),
    Magic(11, "json_list", "carrier"),
    Magic(12, "missing_ret_code", "carrier"),
    Magic(13, "numeric_ret_code", "carrier"),
    Magic(14, "huge_body", "carrier"),
    Magic(15, "slow_drip", "carrier"),
    Magic(16, "cut", "carrier"),
    Magic(17, "empty_body", "carrier"),
    Magic(18, "system_error", "carrier"),
    Magic(19, "bad_signature", "carrier"),
    Magic(21, "refused", "carrier"),
    Magic(22, "unknown_code", "carrier"),
    Magic(23, "payment_page_missing", "pay"),
    Magic(24, "payment_page_relative", "pay"),
    Magic(26, "other_reference", "pay"),
    Magic(27, "wrong_amount", "pay"),
    Magic(28, "amount_number", "pay"),
    Magic(31, "server_error", "query", 3),
    Magic(32, "rate_limited", "query", 3),
    Magic(33, "broken_json", "query", 3),
    Magic(34, "lost_response", "query", 3),
    Magic(35, "delay", "query", 3),
    Magic(36, "denied", "query", 3),
    Magic(37, "bad_signature", "query", 3),
    Magic(41, "unknown_status", "query"),
    Magic(42, "missing_amount", "query"),
    Magic(43, "wrong_amount", "query"),
    Magic(44, "amount_text", "query"),
    Magic(45, "wrong_currency", "query"),
    Magic(46, "missing_currency", "query"),
    Magic(47, "wrong_settle_currency", "query"),
    Magic(48, "wrong_transaction_no", "query"),
    Magic(51, "other_reference", "query"),
    Magic(61, "notification_missing", "notification"),
    Magic(62, "notification_late", "notification"),
    Magic(63, "notification_duplicate", "notification"),
    Magic(64, "notification_reordered", "notification"),
    Magic(65, "notification_bad_signature", "notification"),
    Magic(66, "notification_wrong_amount", "notification"),
    Magic(67, "notification_forged", "created"),
    Magic(71, "late_money", "decision"),
    Magic(72, "raw_macros", "callback"),
    Magic(73, "no_return", "callback"),
)
MAGIC: Mapping[int, Magic] = MappingProxyType({MAGIC_DOLLARS * 100 + row.cents: row for row in _TABLE})


def _known(key: str, name: str) -> Fault:
    if name not in FAULTS:
        raise UnknownOption(key, *difflib.get_close_matches(name, FAULTS, n=1))
    return FAULTS[name]


def check_probabilities(faults: Mapping[str, float]) -> None:
    """Raise for a fault that does not exist, cannot strike at the given occasion, or has no probability from 0 to 1."""
    for key, probability in faults.items():
        occasion, _, name = key.rpartition(".")
        fault = _known(key, name)
        if occasion and occasion not in fault.occasions:
            raise WrongOption(key, probability, f"one of the occasions {', '.join(fault.occasions)}")
        if not isinstance(probability, (int, float)) or not 0 <= probability <= 1:
            raise WrongOption(key, probability, "a probability from 0 to 1")


@dataclass(slots=True)
class Planned:
    """A fault that the control API has planned: at the next `times` occasions, of one reference or of any."""

    fault: Fault
    occasion: Occasion | None = None
    reference: str | None = None
    times: int = 1

    def fits(self, occasion: Occasion, reference: str) -> bool:
        """Return whether this occasion is one that the plan means."""
        return occasion in self.fault.occasions and self.occasion in (None, occasion) and self.reference in (None, reference)


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

    def plan(self, name: str, *, occasion: str | None = None, reference: str | None = None, times: int = 1) -> Planned:
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
