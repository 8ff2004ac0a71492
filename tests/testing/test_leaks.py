"""The search for leaks: it must find what is planted, or it is worth nothing."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tillgate.testing import find_leaks
from tillgate.testing.leaks import leaks_in
from tillgate.testing.scrubbing import digest

PUBLISHED_TOKEN = "5cbfb079f15b150122261c8537086d77a"
REAL_TOKEN = "correct horse/battery+staple"
SIGNATURE = "signature of an answer"
SIGNED = Path(__file__).parents[2] / "cassettes" / "test_signed_answers_are_verified-signed.yaml"


@pytest.fixture
def clean() -> str:
    return SIGNED.read_text("utf-8")


def test_cassette_with_recomputed_signatures_is_clean(clean: str) -> None:
    assert clean.count("verifySign") == 6
    assert leaks_in(clean, secrets=[PUBLISHED_TOKEN, REAL_TOKEN]) == []


def folded(token: str) -> str:
    return f'"{token[:10]}\\\n  {token[10:]}"'


REQUEST = '"verifySign": "SIGNATURE"'
MESSAGE = '"ret_msg": "prepay success"'
PLANTS = {
    "token in a request": (
        REQUEST,
        f'"verifySign": "SIGNATURE",\n        "x": "{PUBLISHED_TOKEN}"',
    ),
    "token in an answer": (MESSAGE, f'"ret_msg": "use {PUBLISHED_TOKEN}"'),
    "token in capitals": (MESSAGE, f'"ret_msg": "use {PUBLISHED_TOKEN.upper()}"'),
    "token inside a word": (MESSAGE, f'"ret_msg": "x{PUBLISHED_TOKEN}y"'),
    "token in escapes": (
        MESSAGE,
        '"ret_msg": "' + "".join(f"\\u{ord(c):04x}" for c in PUBLISHED_TOKEN) + '"',
    ),
    "token in percent signs": (
        MESSAGE,
        '"ret_msg": "' + "".join(f"%{ord(c):02x}" for c in PUBLISHED_TOKEN) + '"',
    ),
    "token in twofold percent signs": (
        MESSAGE,
        '"ret_msg": "' + "".join(f"%25{ord(c):02x}" for c in PUBLISHED_TOKEN) + '"',
    ),
    "token in JSON inside JSON": (
        MESSAGE,
        '"ret_msg": "{\\"k\\":\\"\\\\u0035' + PUBLISHED_TOKEN[1:] + '\\"}"',
    ),
    "MD5 of the token": (MESSAGE, f'"ret_msg": "{digest(PUBLISHED_TOKEN)}"'),
    "real token of the environment": (MESSAGE, f'"ret_msg": "{REAL_TOKEN}"'),
    "real token in percent signs": (MESSAGE, '"ret_msg": "correct%20horse%2Fbattery%2Bstaple"'),
    "real token in a form": (MESSAGE, '"ret_msg": "correct+horse%2Fbattery%2Bstaple"'),
    "MD5 of the real token": (MESSAGE, f'"ret_msg": "{digest(REAL_TOKEN)}"'),
    "unknown signature in a request": (REQUEST, f'"verifySign": "{"0a" * 16}"'),
    "short signature in a request": (REQUEST, '"verifySign": "0a1b"'),
    "signature of another token in an answer": (SIGNATURE, "0a" * 16),
    "signature of an answer in a request": (REQUEST, f'"verifySign": "{SIGNATURE}"'),
    "merchant number in a request": ('"merchantNo": "MERCHANT"', '"merchantNo": "200043"'),
    "merchant number in an address": ("/online/v1/refund", "/online/v1/refund?merchantNo=990001"),
    "token in an address": ("/online/v1/refund", f"/online/v1/refund?k={PUBLISHED_TOKEN}"),
    "real host": (
        "https://gateway.example/online/v1/refund",
        "https://pay.gateway.test/online/v1/refund",
    ),
    "token in a header": (
        "content-type:\n      - application/json",
        f"retry-after:\n      - {PUBLISHED_TOKEN}",
    ),
    "cookie": ("content-type:\n      - application/json", "Set-Cookie:\n      - session=1"),
    "date": (
        "content-type:\n      - application/json",
        "date:\n      - Tue, 18 Nov 2025 10:00:00 GMT",
    ),
    "folded over lines": ("code: 200", f"code: 200\n      note: {folded(PUBLISHED_TOKEN)}"),
    "binary": (
        "code: 200",
        f"code: 200\n      note: !!binary {base64.b64encode(PUBLISHED_TOKEN.encode()).decode()}",
    ),
    "comment": ("version: 1", f"# {PUBLISHED_TOKEN}\nversion: 1"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_secret_is_found(clean: str, tmp_path: Path, plant: str) -> None:
    signature = re.findall('"verifySign": "([0-9a-f]{32})"', clean)[-1]
    before, after = (text.replace(SIGNATURE, signature) for text in PLANTS[plant])
    assert before in clean
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mutated.yaml").write_text(clean.replace(before, after, 1), "utf-8")
    leaks = find_leaks(tmp_path, environment={"TILLGATE_TOKEN": REAL_TOKEN})
    assert leaks, plant
    for secret in (PUBLISHED_TOKEN, digest(PUBLISHED_TOKEN), REAL_TOKEN, digest(REAL_TOKEN)):
        assert secret not in "".join(map(str, leaks))


@pytest.mark.parametrize("name", ["notes.txt", "broken.yaml", "odd.yaml", "binary.bin"])
def test_non_cassette_files_are_searched_too(tmp_path: Path, name: str) -> None:
    content = {
        "broken.yaml": b"a: [\n",
        "odd.yaml": b"interactions: [7, {request: 7, response: {body: 7}}]\n",
        "binary.bin": b"\xff\xfe",
    }
    (tmp_path / name).write_bytes(content.get(name, b""))
    assert find_leaks(tmp_path) == []
    (tmp_path / name).write_bytes(content.get(name, b"") + f"# {PUBLISHED_TOKEN}".encode())
    assert [leak.path.name for leak in find_leaks(tmp_path)] == [name, name]


def test_search_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        find_leaks(tmp_path / "cassetes")
