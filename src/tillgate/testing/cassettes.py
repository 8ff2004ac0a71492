"""Cassettes: one test's conversation with the gateway, recorded by vcrpy or replayed from a plain YAML file.

The recording stays in memory until the test has passed, and only the scrubbed conversation is written. An answer belongs to a request with
the same method, path, query and body; the order of members, the merchantNo and the verifySign do not count.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from vcr.cassette import Cassette as VcrCassette
from vcr.filters import decode_response
from vcr.persisters.filesystem import CassetteNotFoundError
from vcr.record_mode import RecordMode
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer
from vcr.util import read_body

from tillgate.account import Account
from tillgate.testing.bodies import read_form, read_json, write_json
from tillgate.testing.leaks import leaks_in
from tillgate.testing.references import References
from tillgate.testing.scrubbing import REPLAY_BASE_URL, Answer, Call, Exchange, Scrubber

_LONGEST_DIFFERENCE = 12


class Cassette:
    """The conversation of one test: its `path`, whether it `is_recording`, and its `references`, which draw random parts."""

    def __init__(self, path: Path, account: Account, *, is_recording: bool, title: str, command: str) -> None:
        self.path = path
        self.is_recording = is_recording
        self.references = References(is_recording=is_recording)
        self._account = account
        self._scrubber = Scrubber(account)
        self._title = title
        self._command = command
        self._recorded: list[Exchange] = []
        self._taken: list[tuple[Any, Mapping[str, Any]]] = []
        self._complaints: list[str] = []
        self._unused: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Catch the requests of every HTTP client until the block ends."""
        mode = RecordMode.ALL if self.is_recording else RecordMode.NONE
        tape = _Tape.use(
            owner=self,
            path=str(self.path),
            persister=self,
            record_mode=mode,
            match_on=(self._matches,),
            before_record_request=self._only_ours,
        )
        with _quiet(), tape as running:
            yield
        # Not in save_cassette: an error there leaves vcrpy's patches in place for the next test.
        self._recorded = [Exchange(call=_call(call), answer=_answer(answer)) for call, answer in self._taken]
        self._unused = [_Shape.of(_call(call)).title for index, call in enumerate(running.requests) if not running.play_counts[index]]

    def finish(self) -> None:
        """Write the recording, or fail if the replay differs from the conversation on file. Call it once the test has passed."""
        if self._complaints:
            pytest.fail(self._complaints[0], pytrace=False)
        if self.is_recording:
            self._write()
        elif not self.path.exists():
            pytest.fail(self._missing(), pytrace=False)
        elif self._unused:
            left = "\n".join(f"  {title}" for title in self._unused)
            pytest.fail(f"{self.path} holds requests that the test did not send:\n{left}\nRecord it again: {self._command}", pytrace=False)

    def _write(self) -> None:
        if not self._recorded:
            pytest.fail(f"{self.path.name}: the test sent nothing to {self._account.base_url}, so it needs no cassette", pytrace=False)
        scrubber = Scrubber(self._account, self.references.stand_ins)
        text = f"# {self._title}\n# Record it again: {self._command}\n{as_yaml(scrubber.scrub(self._recorded))}"
        leaks = leaks_in(text, secrets=scrubber.secrets())
        if leaks:
            pytest.fail(f"{self.path} was not written, since it would hold {', '.join(leaks)}", pytrace=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, "utf-8", newline="\n")

    # The calls that vcrpy makes.

    def load_cassette(self, path: str, serializer: Any) -> tuple[list[Any], list[Any]]:
        """Return the requests and answers on file, as vcrpy holds them."""
        if self.is_recording or not self.path.exists():
            raise CassetteNotFoundError
        try:
            requests, answers, *_ = deserialize(self.path.read_text("utf-8"), yamlserializer)
        except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            pytest.fail(f"{self.path} is not a cassette ({type(error).__name__}: {error})", pytrace=False)
        return requests, answers

    def save_cassette(self, path: str, content: Mapping[str, list[Any]], serializer: Any) -> None:
        """Keep the recording in memory until the test has passed."""
        self._taken = list(zip(content["requests"], content["responses"], strict=True))

    def _refuse(self, request: Any, tape: Any) -> None:
        """Fail the test over a request that is not on file. No `except` hides pytest's failure; if a thread does, `finish` fails."""
        complaint = self._missing() if not self.path.exists() else self._explain(request, tape)
        self._complaints.append(complaint)
        pytest.fail(complaint, pytrace=False)

    def _missing(self) -> str:
        return f"there is no cassette {self.path}\nRecord it: {self._command}"

    def _explain(self, request: Any, tape: Any) -> str:
        asked = self._shape(request)
        same_place = [(self._shape(one), tape.play_counts[index]) for index, one in enumerate(tape.requests)]
        near = [(shape, played) for shape, played in same_place if shape.title == asked.title]
        lines = [f"{self.path} holds no answer to {asked.title}"]
        if any(shape == asked and played for shape, played in near):
            lines.append("  the same request is on file, and has been answered already")
        elif near:
            lines += [f"  {difference}" for difference in near[0][0].differences(asked)]
        elif same_place:
            lines.append(f"  it holds {', '.join(dict.fromkeys(shape.title for shape, _ in same_place))}")
        return "\n".join([*lines, f"Record it again: {self._command}"])

    def _shape(self, request: Any) -> _Shape:
        # Both sides go through the same scrubber, so that its changes to a request are the same on both.
        return _Shape.of(self._scrubber.call(_call(request)))

    def _matches(self, asked: Any, recorded: Any) -> bool:
        return self._shape(asked) == self._shape(recorded)

    def _only_ours(self, request: Any) -> Any:
        # Other requests are no part of the conversation: the sandbox lives in this process, and sends notifications over HTTP.
        return request if self._scrubber.is_ours(request.uri) or request.uri.startswith(f"{REPLAY_BASE_URL}/") else None


class _Tape(VcrCassette):  # type: ignore[misc]  # vcrpy ships no types
    """vcrpy's cassette with Tillgate's own error messages: vcrpy's advise settings that users of Tillgate do not have."""

    def __init__(self, *, owner: Cassette, **options: Any) -> None:
        self._owner = owner
        super().__init__(**options)

    def can_play_response_for(self, request: Any) -> bool:
        if super().can_play_response_for(request):
            return True
        if not self._owner.is_recording and self.filter_request(request):
            self._owner._refuse(request, self)
        return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn off vcrpy's logs, which hold whole answers while it records (I11)."""
    logger = logging.getLogger("vcr")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parts that two requests must have in common: method, path, query, kind of body, and the body's members by name."""

    title: str
    query: tuple[tuple[str, str], ...]
    kind: str
    members: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, call: Call) -> _Shape:
        address, _, query = call.url.partition("?")
        kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
        return cls(f"{call.method} {address}", tuple(sorted(read_form(query))) or (("", query),), kind, _members_of(call.body, kind))

    def differences(self, asked: _Shape) -> Iterator[str]:
        """Return the differences between this request, which is on file, and another one to the same place."""
        if self.kind != asked.kind:
            yield f"Content-Type: {self.kind!r} on file, {asked.kind!r} sent"
        for mine, its in ((dict(self.query), dict(asked.query)), (dict(self.members), dict(asked.members))):
            different = [name for name in {**mine, **its} if mine.get(name) != its.get(name)]
            for name in different[:_LONGEST_DIFFERENCE]:
                yield f"{name or 'body'}: {mine.get(name, 'nothing')!s} on file, {its.get(name, 'nothing')!s} sent"


def _members_of(body: bytes, kind: str) -> tuple[tuple[str, str], ...]:
    text = body.decode("utf-8", "backslashreplace")
    pairs = read_form(text) if "form-urlencoded" in kind else []
    if pairs:
        return tuple(sorted(pairs))
    found = read_json(text)
    if isinstance(found, dict):
        return tuple(sorted((name, write_json(_sorted(member))) for name, member in found.items()))
    return (("", text if found is None else write_json(_sorted(found))),)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(member) for member in value] if isinstance(value, list) else value


def _call(request: Any) -> Call:
    """Return a request of vcrpy's as a value; its body may be bytes, a file, an iterator, or an object for the client to encode."""
    body = read_body(request)
    if isinstance(body, dict | list):
        body = json.dumps(body, default=str)
    return Call(
        method=request.method,
        url=request.uri,
        headers={str(name).lower(): _header(value) for name, value in request.headers.items()},
        body=body.encode() if isinstance(body, str) else bytes(body or b""),
    )


def _answer(response: Mapping[str, Any]) -> Answer:
    names = {str(name).lower() for name in response["headers"]}
    if "content-encoding" in names:
        # Some clients have already decompressed the body but kept the header.
        with contextlib.suppress(Exception):
            response = decode_response(response)
    body = response["body"].get("string") or b""
    if "content-encoding" in names and "�" in str(body, "utf-8", "replace"):
        pytest.fail("an answer is compressed in a way that cannot be undone here, and could hide a secret", pytrace=False)
    return Answer(
        status=response["status"]["code"],
        reason=response["status"]["message"] or "",
        headers={str(name).lower(): _header(value) for name, value in response["headers"].items()},
        body=body.encode() if isinstance(body, str) else body,
    )


def _header(value: Any) -> str:
    first = value[0] if isinstance(value, list | tuple) else value
    return first.decode("latin-1") if isinstance(first, bytes) else str(first)


# The file: vcrpy's own format, with bodies that people can read.


_NEVER_FOLDED: Final = 1_000_000
_OTHER_BREAKS: Final = frozenset("\r\x85\u2028\u2029")
"""Line ends that YAML changes unless they are escaped."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def as_yaml(exchanges: Iterable[Exchange]) -> str:
    """Write a conversation as vcrpy reads it."""
    content = {"version": 1, "interactions": [_on_file(one.call, one.answer) for one in exchanges]}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NEVER_FOLDED)


def _on_file(call: Call, answer: Answer) -> dict[str, Any]:
    headers, answer_headers = ({name: [value] for name, value in side.headers.items()} for side in (call, answer))
    status, body = {"code": answer.status, "message": answer.reason}, {"string": _text_on_file(answer.body)}
    return {
        "request": {"method": call.method, "uri": call.url, "headers": headers, "body": _text_on_file(call.body)},
        "response": {"status": status, "headers": answer_headers, "body": body},
    }


def _text_on_file(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
