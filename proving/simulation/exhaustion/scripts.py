"""A step's dialogue with the database, so a step need not be played where it would hear the same.

An actor that hears the same does the same. Where a step has not been played, its statements are
repeated without the actor: as long as the answers equal those of a step played elsewhere, the actor
would go on as it did there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from sqlite3 import DatabaseError
from typing import Any, Generic, TypeVar
from unittest import mock

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["Script", "Scripts", "Spoken", "hearing_the_end_of_transactions"]

_Outcome = TypeVar("_Outcome")


@dataclass
class Spoken:
    """One thing that was said, or asked and heard."""

    said: Callable[[list[Any]], Any]
    """Says it to the database, given the cursors of the statements so far."""
    heard: str | None = None
    """The answer, or nothing if none is heard."""


@dataclass
class Script:
    """All that was said and heard in one step."""

    spoken: list[Spoken] = field(default_factory=list)
    is_whole: bool = True
    """Whether all that the step depends on is in it."""
    _statements: int = 0

    def execute(self, sql: str, params: Any) -> int:
        """Note a statement, and return its number."""

        def said(cursors: list[Any]) -> None:
            cursors.append(connection.create_cursor())
            cursors[-1].execute(sql, params)

        self.spoken.append(Spoken(said))
        self._statements += 1
        return self._statements - 1

    def say(self, action: Callable[[], object]) -> None:
        """Note an act outside the database."""
        self.spoken.append(Spoken(lambda _: action()))

    def end(self, how: str) -> None:
        """Note a commit or a rollback."""
        self.spoken.append(Spoken(lambda _: getattr(connection.connection, how)()))

    def ask(self, ask: Callable[[list[Any]], Any], heard: Any) -> None:
        """Note a question and its answer."""
        self.spoken.append(Spoken(ask, repr(heard)))


@dataclass
class _Scene(Generic[_Outcome]):
    """An actor's words up to its next question, how it goes on for each answer to that, and the
    outcome if there is no question.
    """

    spoken: list[Spoken] = field(default_factory=list)
    by_answer: dict[str, _Scene[_Outcome]] = field(default_factory=dict)
    outcome: _Outcome | None = None


class Scripts(Generic[_Outcome]):
    """The scripts of one step of an actor, and the outcome of each."""

    def __init__(self) -> None:
        self._first: _Scene[_Outcome] = _Scene()
        self.touched: set[str] = set()
        """The parts of the world that any of them touches."""

    def add(self, script: Script, outcome: _Outcome, touched: Collection[str]) -> None:
        """Add a script that was played."""
        self.touched.update(touched)
        scene = self._first
        is_new = not scene.spoken
        for one in script.spoken:
            if is_new:
                scene.spoken.append(one)
            if one.heard is not None:
                is_new = one.heard not in scene.by_answer
                scene = scene.by_answer.setdefault(one.heard, _Scene())
        scene.outcome = outcome

    def follow(self) -> _Outcome | None:
        """Say the actor's words to the database, and return the outcome; nothing when an answer is
        new.
        """
        scene, cursors = self._first, list[Any]()
        try:
            while True:
                answer = None
                for one in scene.spoken:
                    answer = one.said(cursors)
                if not scene.by_answer:
                    return scene.outcome
                following = scene.by_answer.get(repr(answer))
                if following is None:
                    return None
                scene = following
        except DatabaseError:
            return None
        finally:
            if connection.connection.in_transaction:
                connection.connection.rollback()


@contextmanager
def hearing_the_end_of_transactions(hear: Callable[[str], None]) -> Iterator[None]:
    """Hear of each commit and rollback that reaches the database."""

    def ending(how: str) -> Callable[[BaseDatabaseWrapper], None]:
        end: Callable[[BaseDatabaseWrapper], None] = getattr(BaseDatabaseWrapper, f"_{how}")

        def ended(wrapper: BaseDatabaseWrapper) -> None:
            hear(how)
            end(wrapper)

        return ended

    with (
        mock.patch.object(BaseDatabaseWrapper, "_commit", ending("commit")),
        mock.patch.object(BaseDatabaseWrapper, "_rollback", ending("rollback")),
    ):
        yield
