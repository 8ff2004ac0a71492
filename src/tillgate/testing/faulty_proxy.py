"""A proxy before the emulator of a gateway, which loses, delays and spoils its answers: so an
emulator of other people can play the faults of the conformance kits.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import urlsplit

__all__ = ["FaultyProxy"]

_TIMEOUT_SECONDS: Final = 30
_OF_ONE_HOP: Final = frozenset(
    {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"},
)
_INSTEAD: Final = {
    "refused": 400,
    "denied": 404,
    "unknown_code": 422,
    "server_error": 500,
    "system_error": 503,
    "rate_limited": 429,
    "redirect": 302,
}
"""The statuses of the faults that replace the work."""
_DAMAGE: Final = frozenset(
    {"lost_response", "slow", "html_body", "broken_json", "cut_body", "other_reference"},
)
_HTML: Final = b"<html><body>Something went wrong.</body></html>"
_ELSEWHERE: Final = "/the-page-has-moved"
_NAME: Final = re.compile(r"[a-z]+|[A-Z][a-z]*")


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    length: int | None = None
    """The length in its header, if that is a lie."""


@dataclass
class _Plan:
    """The faults of the next calls of an operation."""

    fault: str
    operation: str
    left: float
    seconds: float = 0


@dataclass
class _Seen:
    """The requests and answers that have come through."""

    calls: Counter[str] = field(default_factory=Counter)
    secrets: set[str] = field(default_factory=set)
    answers: dict[str, dict[str, _Answer]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """Requests that are no operation."""


def _words(name: str) -> set[str]:
    return {word.lower() for word in _NAME.findall(name)}


def _change(value: Any, names: set[str], change: Callable[[Any], Any]) -> None:
    """Change every member of a JSON value with one of the words in its name; None removes it."""
    for one in value if isinstance(value, list) else ():
        _change(one, names, change)
    for name, one in [*value.items()] if isinstance(value, dict) else ():
        if isinstance(one, dict | list):
            _change(one, names, change)
        elif names & _words(name) and one is not None:
            value[name] = change(one)
            if value[name] is None:
                del value[name]


_CURRENCY: Final = {"currency"}
_AMOUNT: Final = {"amount", "total", "value"}
_STATUS: Final = {"status", "state"}
_ALTERED: Final[Mapping[str, Callable[[Any], None]]] = {
    "missing_currency": lambda answer: _change(answer, _CURRENCY, lambda _: None),
    "wrong_currency": lambda answer: _change(
        answer,
        _CURRENCY,
        lambda code: "EUR" if str(code).upper() != "EUR" else "USD",
    ),
    "missing_amount": lambda answer: _change(answer, _AMOUNT, lambda _: None),
    "wrong_amount": lambda answer: _change(answer, _AMOUNT, lambda was: type(was)(1)),
    "strange_status": lambda answer: _change(answer, _STATUS, lambda _: "quantum"),
}


class FaultyProxy:
    """Passes the requests of a plugin on to an emulator at an address, and plays faults.

    `calls` has a regular expression for each operation, which matches the whole of its method and
    path, without the query, such as `{"pay": "POST /orders", "query": r"GET /orders/[^/]+"}`; all
    other requests pass. `altered` replaces the functions that spoil a JSON answer, by the names of
    faults: by default every member with the word currency, amount, total, value, status or state in
    its name is changed. `refusal` is the JSON of an answer that says no, in the gateway's own form.
    """

    def __init__(
        self,
        target: str,
        calls: Mapping[str, str],
        altered: Mapping[str, Callable[[Any], None]] | None = None,
        refusal: object = None,
    ) -> None:
        self.target = target.rstrip("/")
        self._calls = {name: re.compile(pattern) for name, pattern in calls.items()}
        self._altered = {**_ALTERED, **(altered or {})}
        self._refusal = json.dumps(refusal or {"error": "no"}).encode()
        self._plans: list[_Plan] = []
        self._seen, self._lock, self._stopped = _Seen(), threading.Lock(), threading.Event()

    def start(self) -> Self:
        """Listen at `url`, on a free port of this machine."""
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.daemon = True
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address for the account."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def faults(self) -> frozenset[str]:
        """The names of the faults that can be played."""
        return frozenset({"lost_request", *_INSTEAD, *_DAMAGE, *self._altered})

    def fault(self, name: str, operation: str, *, times: float = 1, seconds: float = 0) -> None:
        """Let something be wrong with the next calls of an operation; `slow` is late by so many
        seconds.
        """
        if operation not in self._calls or name not in self.faults:
            raise NotImplementedError(
                f"the proxy knows no fault {name!r}, or no calls of {operation!r}: name them",
            )
        with self._lock:
            self._plans.append(_Plan(name, operation, times, seconds))

    def clear(self) -> None:
        """Let nothing be wrong any more."""
        with self._lock:
            self._plans.clear()

    def received(self, operation: str) -> int:
        """Return how many calls of an operation have arrived."""
        return self._seen.calls[operation]

    def expect(self, operation: str) -> None:
        """Fail unless a call of an operation has arrived: `calls` does not name it."""
        others = ", ".join(dict.fromkeys(self._seen.others)) or "no request"
        pattern = self._calls.get(operation)
        assert self._seen.calls[operation], (
            f"the proxy has seen no {operation!r}, which is {pattern and pattern.pattern!r} in its "
            f"calls, and passed on: {others}"
        )

    def secrets(self) -> set[str]:
        """Return the credentials of the requests so far, and the access tokens of the answers."""
        with self._lock:
            return set(self._seen.secrets)

    # For the server's threads ---------------------------------------------------------------------

    def answer(self, request: _Handler) -> _Answer | None:
        """Return the answer to a request; None closes the connection. A body may be shorter than
        its length says.
        """
        path = request.path.partition("?")[0]
        called = [
            name
            for name, pattern in self._calls.items()
            if pattern.fullmatch(f"{request.command} {path}")
        ]
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        plan = self._take_plan(request, called, path)
        fault = plan.fault if plan else ""
        if path == _ELSEWHERE:
            return _Answer(404, (("Content-Type", "text/html"),), _HTML)
        if fault == "lost_request":
            return None
        if fault in _INSTEAD:
            return self._instead(fault)
        answer = self._pass_on(request, body)
        others = self._seen.answers.setdefault(called[0], {}) if called else {}
        asked = request.path + body.decode("utf-8", "replace")
        if plan is None:
            others[asked] = answer
            return answer
        return self._spoilt(plan, answer, [one for name, one in others.items() if name != asked])

    def _take_plan(self, request: _Handler, called: list[str], path: str) -> _Plan | None:
        """Note a request, and return the fault that is planned for it, one time less."""
        with self._lock:
            self._seen.calls.update(called)
            if not called:
                self._seen.others.append(f"{request.command} {path}")
            plan = next((one for one in self._plans if one.operation in called), None)
            if plan is not None:
                plan.left -= 1
                if plan.left <= 0:
                    self._plans.remove(plan)
            self._note_secrets(request.headers.get("Authorization", "").partition(" ")[2])
        return plan

    def _instead(self, fault: str) -> _Answer:
        """Return the answer of a fault that keeps a request from the emulator."""
        if fault in ("refused", "denied", "unknown_code"):
            return _Answer(_INSTEAD[fault], (("Content-Type", "application/json"),), self._refusal)
        to = [("Location", self.url + _ELSEWHERE)] if fault == "redirect" else []
        return _Answer(_INSTEAD[fault], (("Content-Type", "text/html"), *to), _HTML)

    def _pass_on(self, request: _Handler, body: bytes) -> _Answer:
        headers = [
            (name, text)
            for name, text in request.headers.items()
            if name.lower() not in {*_OF_ONE_HOP, "accept-encoding"}
        ]
        # the standard library's client, which logs nothing: a log would count as the plugin's
        target = urlsplit(self.target)
        kind = HTTPSConnection if target.scheme == "https" else HTTPConnection
        with closing(kind(target.netloc, timeout=_TIMEOUT_SECONDS)) as connection:
            connection.request(
                request.command,
                target.path + request.path,
                body or None,
                {**dict(headers), "Accept-Encoding": "identity"},
            )
            response = connection.getresponse()
            content = response.read()
        with self._lock:
            for token in re.findall(rb'"access_token"\s*:\s*"([^"]+)"', content):
                self._note_secrets(token.decode("utf-8", "replace"))
        kept = [
            (name, text) for name, text in response.getheaders() if name.lower() not in _OF_ONE_HOP
        ]
        return _Answer(response.status, tuple(kept), content)

    def _note_secrets(self, *found: str) -> None:
        self._seen.secrets.update(filter(None, found))

    def _spoilt(self, plan: _Plan, answer: _Answer, others: Sequence[_Answer]) -> _Answer | None:
        """Return an answer with the fault of a plan. `others` are answers to other requests."""
        match plan.fault:
            case "lost_response":
                return None
            case "slow":
                self._stopped.wait(plan.seconds)
                return answer
            case "html_body":
                return _Answer(200, (("Content-Type", "text/html"),), _HTML)
            case "broken_json":
                return replace(answer, body=answer.body[: len(answer.body) // 2])
            case "cut_body":
                half = answer.body[: len(answer.body) // 2]
                return replace(answer, body=half, length=len(answer.body))
            case "other_reference" if plan.fault not in self._altered:
                return others[-1] if others else answer
        try:
            spoilt = json.loads(answer.body)
            self._altered[plan.fault](spoilt)
        except (ValueError, LookupError, TypeError):
            return answer  # so that the scenario fails, and the author gives a function
        return replace(answer, body=json.dumps(spoilt).encode())


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyProxy

    def _serve(self) -> None:
        answer = self.proxy.answer(self)
        if answer is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(answer.status)
        for name, text in answer.headers:
            self.send_header(name, text)
        self.send_header("Content-Length", str(answer.length or len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # as the server calls

    def log_message(self, *_: Any) -> None:
        """Write nothing: a line may hold a secret."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *arguments: Any) -> None:
        """Print the error, unless a client did not wait."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*arguments)


def _handler(proxy: FaultyProxy) -> type[_Handler]:
    return type("_Handler", (_Handler,), {"proxy": proxy})
