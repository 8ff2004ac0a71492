"""Whether all of this is play: only then do the pages say that no real money moves."""

from typing import Any

from tillgate.django.conf import get_settings


def told(_request: Any) -> dict[str, bool]:
    """Tell the templates whether every account is a sandbox's; a live one takes real money."""
    return {
        "is_demonstration": all(account.sandbox for account in get_settings().accounts.values()),
    }
