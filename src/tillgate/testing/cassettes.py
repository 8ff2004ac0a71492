"""Cassettes: one test's conversation with the gateway, recorded by vcrpy or replayed from a plain
YAML file.

Scrubbing is vcrpy's `before_record_request` and `before_record_response`, so that only scrubbed
values are kept, in memory until the test has passed. The finished text is searched for secrets
before it becomes a file. An answer belongs to a request with the same method, path, query and body;
the order of members and the values that scrubbing hides do not count.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import yaml
from vcr.cassette import Cassette as VcrCassette
from vcr.persisters.filesystem import CassetteNotFoundError
from vcr.record_mode import RecordMode
from vcr.serialize import deserialize, serialize
from vcr.serializers import yamlserializer

from tillgate.account import Account
from tillgate.testing.leaks import NOT_A_CASSETTE, leaks_in
from tillgate.testing.references import References
from tillgate.testing.scrubbing import Scrubber, read_json, write_json

_LONGEST_DIFFERENCE = 12
# line ends that YAML changes unless they are escaped
_OTHER_BREAKS = frozenset("\r\x85\u2028\u2029")


class Cassette:
    """The conversation of one test: its `path`, whether it `is_recording`, and its `references`,
    which draw random parts.
    """

    def __init__(
        self,
        path: Path,
        account: Account,
        *,
        is_recording: bool,
        title: str,
        command: str,
    ) -> None:
        self.path = path
        self.is_recording = is_recording
        self.references = References(is_recording=is_recording)
        self._account = account
        self._scrubber = Scrubber(account, self.references.stand_ins)
        self._title = title
        self._command = command
        self._recorded: Mapping[str, list[Any]] = {}
        self._complaints: list[str] = []
        self._unused: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Catch the requests of every HTTP client until the block ends."""
        tape = _Tape.use(
            owner=self,
            path=str(self.path),
            persister=self,
            record_mode=RecordMode.ALL if self.is_recording else RecordMode.NONE,
            match_on=(lambda asked, on_file: _parts(asked) == _parts(on_file),),
            before_record_request=self._scrubber.request,
            before_record_response=self._scrubber.response if self.is_recording else None,
        )
        with _quiet(), tape as running:
            yield
        self._unused = [
            _title(one)
            for index, one in enumerate(running.requests)
            if not running.play_counts[index]
        ]

    def finish(self) -> None:
        """Write the recording, or fail if the replay differs from the conversation on file. Call it
        once the test has passed.
        """
        if self._complaints:
            pytest.fail(self._complaints[0], pytrace=False)
        if self.is_recording:
            self._write()
        elif not self.path.exists():
            pytest.fail(self._missing(), pytrace=False)
        elif self._unused:
            left = "\n".join(f"  {title}" for title in self._unused)
            pytest.fail(
                f"{self.path} holds requests that the test did not send:\n{left}\nRecord it "
                f"again: {self._command}",
                pytrace=False,
            )

    def _write(self) -> None:
        if not self._recorded.get("requests"):
            pytest.fail(
                f"{self.path.name}: the test sent nothing to {self._account.base_url}, so it "
                "needs no cassette",
                pytrace=False,
            )
        text = (
            f"# {self._title}\n# Record it again: "
            f"{self._command}\n{serialize(self._recorded, _Readable)}"
        )
        if leaks := leaks_in(text, secrets=[self._account.token.get_secret_value()]):
            pytest.fail(
                f"{self.path} was not written, since it would hold {', '.join(leaks)}",
                pytrace=False,
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text, "utf-8", newline="\n")

    # The calls that vcrpy makes.

    def load_cassette(self, path: str, serializer: Any) -> tuple[list[Any], list[Any]]:
        """Return the requests and answers on file, as vcrpy holds them."""
        if self.is_recording or not self.path.exists():
            raise CassetteNotFoundError
        try:
            requests, answers, *_ = deserialize(self.path.read_text("utf-8"), yamlserializer)
            requests = [self._scrubber.request(one) or one for one in requests]
        except NOT_A_CASSETTE as error:
            pytest.fail(
                f"{self.path} is not a cassette ({type(error).__name__}: {error})",
                pytrace=False,
            )
        return requests, answers

    def save_cassette(self, path: str, content: Mapping[str, list[Any]], serializer: Any) -> None:
        """Keep the recording in memory until the test has passed."""
        self._recorded = content

    def _refuse(self, asked: Any, tape: VcrCassette) -> None:
        """Fail the test over a request that is not on file. No `except` hides pytest's failure; if
        a thread does, `finish` fails.
        """
        complaint = self._explain(asked, tape) if self.path.exists() else self._missing()
        self._complaints.append(complaint)
        pytest.fail(complaint, pytrace=False)

    def _missing(self) -> str:
        return f"there is no cassette {self.path}\nRecord it: {self._command}"

    def _explain(self, asked: Any, tape: VcrCassette) -> str:
        lines, sent = [f"{self.path} holds no answer to {_title(asked)}"], _parts(asked)
        near = [on_file for one in tape.requests if (on_file := _parts(one))["to"] == sent["to"]]
        if sent in near:
            lines.append("  the same request is on file, and has been answered already")
        elif near:
            names = [name for name in {**near[0], **sent} if near[0].get(name) != sent.get(name)]
            found = [
                (name, near[0].get(name, "nothing"), sent.get(name, "nothing"))
                for name in names[:_LONGEST_DIFFERENCE]
            ]
            lines += [f"  {name}: {on_file} on file, {its} sent" for name, on_file, its in found]
        elif tape.requests:
            lines.append(f"  it holds {', '.join(dict.fromkeys(map(_title, tape.requests)))}")
        return "\n".join([*lines, f"Record it again: {self._command}"])


class _Tape(VcrCassette):  # type: ignore[misc]  # vcrpy ships no types
    """vcrpy's cassette with Tillgate's own error messages: vcrpy's advise settings that users of
    Tillgate do not have.
    """

    def __init__(self, *, owner: Cassette, **options: Any) -> None:
        self._owner = owner
        super().__init__(**options)

    def can_play_response_for(self, request: Any) -> bool:
        if super().can_play_response_for(request):
            return True
        if not self._owner.is_recording and (asked := self.filter_request(request)):
            self._owner._refuse(asked, self)
        return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn off vcrpy's logs, which hold whole requests and answers (I11)."""
    logger = logging.getLogger("vcr")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _title(request: Any) -> str:
    return f"{request.method} {request.uri.partition('?')[0]}"


def _parts(request: Any) -> dict[str, str]:
    """Return by name the parts that two scrubbed requests must have in common."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = bytes(request.body or b"").decode()
    query = dict(parse_qsl(request.uri.partition("?")[2], keep_blank_values=True))
    form = dict(parse_qsl(body, keep_blank_values=True)) if "form-urlencoded" in kind else {}
    found = read_json(body)
    members = (
        {name: write_json(member) for name, member in found.items()}
        if isinstance(found, dict)
        else form or {"body": body}
    )
    return {"to": _title(request), "Content-Type": kind, **query, **members}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


class _Readable:
    """A serializer of vcrpy's that writes readable files."""

    @staticmethod
    def serialize(content: Any) -> str:
        text: str = yaml.dump(
            content,
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=1_000_000,
        )
        return text


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
