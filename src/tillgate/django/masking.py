"""The secrets that no staff page may show: tokens, signatures, and addresses that grant access to
their holder (I11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from tillgate.django.conf import get_settings
from tillgate.django.models import Payment, Refund
from tillgate.errors import ConfigurationError

HIDDEN: Final = "•••"

_SECRET_NAME: Final = re.compile(r"sign|token|secret|password|key|url", re.IGNORECASE)
_SHORTEST: Final = 6
"""Shorter values are not real secrets, and hiding them would garble the page."""


class Mask:
    """Hides the secrets of some payments and refunds in their texts and evidence."""

    def __init__(
        self,
        payments: Iterable[Payment | None] = (),
        refunds: Iterable[Refund | None] = (),
    ) -> None:
        secrets = set()
        with suppress(ConfigurationError):  # the checks report settings that cannot be read
            secrets |= {
                account.token.get_secret_value() for account in get_settings().accounts.values()
            }
        for payment in payments:
            if payment:
                secrets |= {payment.notification_key, payment.return_key, payment.payment_url}
        secrets |= {refund.notification_key for refund in refunds if refund}
        # The longest first: a payment page address may hold one of the others.
        self._secrets = sorted(
            (secret for secret in secrets if len(secret) >= _SHORTEST),
            key=len,
            reverse=True,
        )

    def text(self, text: str) -> str:
        """Return a text with every secret hidden."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def evidence(self, evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return evidence as names and texts; hide every value completely if its name is that of a
        secret or an address.
        """
        return [
            (self.text(str(name)), self._shown(name, value)) for name, value in evidence.items()
        ]

    def _shown(self, name: str, value: Any) -> str:
        plain = self._plain(name, value)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, indent=1)

    def _plain(self, name: str, value: Any) -> Any:
        if _SECRET_NAME.search(str(name)) and value:
            return HIDDEN
        if isinstance(value, Mapping):
            return {
                self.text(str(inner)): self._plain(inner, member) for inner, member in value.items()
            }
        if isinstance(value, list):
            return [self._plain("", member) for member in value]
        return self.text(value) if isinstance(value, str) else value
