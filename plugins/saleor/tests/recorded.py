"""The recorded run of a real Saleor 3.23.28: its requests, byte for byte, and its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

FOLDER: Final = Path(__file__).parent / "recordings"
API_URL: Final = "http://127.0.0.1:8000/graphql/"
ORIGIN: Final = "http://127.0.0.1:8000"
TOKEN: Final = "LOCAL-LAB-TOKEN"


def read(name: str) -> Any:
    """Return a recording."""
    return json.loads((FOLDER / name).read_text("utf-8"))


@dataclass(frozen=True)
class Capture:
    """A request that Saleor sent to an App."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return json.loads(self.raw) if self.raw else None

    @property
    def event(self) -> str:
        """The webhook."""
        return self.headers.get("Saleor-Event", "")


def captures() -> list[Capture]:
    """Return Saleor's requests, in order."""
    found = []
    for path in sorted((FOLDER / "captures").glob("*.json")):
        held = json.loads(path.read_text("utf-8"))
        headers = {
            name: value
            for name, value in held["headers"]
            if name not in ("Host", "Content-Length", "Connection")
        }
        found.append(
            Capture(
                path.stem[:3], held["method"], held["path"], headers, held["body_raw"].encode()
            ),
        )
    return found


def capture(number: int) -> Capture:
    """Return one of them."""
    return captures()[number - 1]


def signed() -> list[Capture]:
    """Return those that are signed."""
    return [one for one in captures() if "Saleor-Signature" in one.headers]


def answers_of_saleor(answers: Callable[[dict[str, Any]], str]) -> httpx.Client:
    """Return a client to which Saleor answers as recorded: its keys, and `answers` to all other
    requests.
    """

    def answer(request: httpx.Request) -> httpx.Response:
        if str(request.url) == f"{ORIGIN}/.well-known/jwks.json":
            return httpx.Response(
                200,
                stream=httpx.ByteStream(json.dumps(read("jwks.json")).encode()),
            )
        assert str(request.url) == API_URL, request.url
        body = json.loads(request.content)
        held = answers(
            {
                "query": body["query"],
                "variables": body["variables"],
                "authorization": request.headers.get("Authorization"),
            },
        )
        return httpx.Response(200, stream=httpx.ByteStream(held.encode()))

    return httpx.Client(transport=httpx.MockTransport(answer))
