"""The search for secrets: it must find a planted one, or it is worth nothing."""

from __future__ import annotations

import base64

import pytest

from tillgate.testing import holds_secret
from tillgate.testing.leaks import digest, everything_logged

HEX_TOKEN = "5cbfb079f15b150122261c8537086d77a"
TOKEN = "correct horse/battery+staple"
SECRETS = (HEX_TOKEN, TOKEN)
CLEAN = '{"verifySign": "SIGNATURE", "ret_msg": "prepay success", "timeout": "120"}'

PLANTS = {
    "as it is": HEX_TOKEN,
    "in capitals": HEX_TOKEN.upper(),
    "inside a word": f"x{HEX_TOKEN}y",
    "half of it": HEX_TOKEN[:14],
    "in escapes": "".join(f"\\u{ord(one):04x}" for one in HEX_TOKEN),
    "in percent signs": "".join(f"%{ord(one):02x}" for one in HEX_TOKEN),
    "in twofold percent signs": "".join(f"%25{ord(one):02x}" for one in HEX_TOKEN),
    "in JSON inside JSON": '{\\"k\\":\\"\\\\u0035' + HEX_TOKEN[1:] + '\\"}',
    "its MD5": digest(HEX_TOKEN),
    "in base64": base64.b64encode(HEX_TOKEN.encode()).decode(),
    "folded over lines": f"{HEX_TOKEN[:10]}\\\n  {HEX_TOKEN[10:]}",
    "words": TOKEN,
    "words in percent signs": "correct%20horse%2Fbattery%2Bstaple",
    "words in a form": "correct+horse%2Fbattery%2Bstaple",
    "the MD5 of words": digest(TOKEN),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_secret_is_found(plant: str) -> None:
    assert not holds_secret(CLEAN, SECRETS)
    assert holds_secret(CLEAN.replace("prepay success", f"use {PLANTS[plant]}"), SECRETS)


def test_short_secret_is_a_whole_word() -> None:
    assert holds_secret("token=t&amount=1", ["t"])
    assert not holds_secret("a letter", ["t"])


def test_debug_records_are_heard() -> None:
    import logging

    with everything_logged() as lines:
        logging.getLogger("any.thing").debug("token %s", HEX_TOKEN)
    assert holds_secret("\n".join(lines), SECRETS)
