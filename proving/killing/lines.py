"""The points at which a process can be killed: every line of some packages, and every so manieth
line of all others.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import count, cycle
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["EVERY", "Lines"]

EVERY: Final = 50
"""Of the lines of other packages, each so manieth is a point."""

_Trace = Callable[[FrameType, str, Any], Any]
_TOOLS: Final = str(Path(__file__).parents[1]) + os.sep
"""Where the proofs are, which no shop runs."""


class Lines:
    """Counts the points that this process passes, in all of its threads, and kills it at one of
    them; 0 kills it nowhere.

    It dies by SIGKILL before the line is carried out: nothing is rolled back, closed or said, but
    for `tell`, which hears where.
    """

    def __init__(
        self,
        packages: Iterable[Path],
        kill_at: int = 0,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._roots = tuple(str(package) + os.sep for package in packages)
        self._kill_at, self._tell = kill_at, tell
        self._points = count(1)
        # each `next` of these is one step: threads count together
        self._is_point = cycle([False] * (EVERY - 1) + [True])

    def watch(self, action: Callable[[], object]) -> int:
        """Do something, and return how many points it passed, if it was not killed."""
        enter, before = self._tracer(), (sys.gettrace(), threading.gettrace())
        threading.settrace(enter)
        sys.settrace(enter)
        try:
            action()
        finally:
            sys.settrace(before[0])
            threading.settrace(before[1])
        return next(self._points) - 1

    def _tracer(self) -> _Trace:
        points, is_point, kill_at, chosen = (
            self._points,
            self._is_point.__next__,
            self._kill_at,
            dict[str, _Trace | None](),
        )

        def own(frame: FrameType, event: str, _: object) -> _Trace:
            if event == "line" and next(points) == kill_at:
                self._die(frame)
            return own

        def other(frame: FrameType, event: str, _: object) -> _Trace:
            if event == "line" and is_point() and next(points) == kill_at:
                self._die(frame)
            return other

        def enter(frame: FrameType, _: str, __: object) -> _Trace | None:
            file = frame.f_code.co_filename
            try:
                return chosen[file]
            except KeyError:
                tracer = (
                    None
                    if file.startswith(_TOOLS)
                    else own
                    if file.startswith(self._roots)
                    else other
                )
                return chosen.setdefault(file, tracer)

        return enter

    def _die(self, frame: FrameType) -> None:
        self._tell(place(frame))
        os.kill(os.getpid(), signal.SIGKILL)


def place(frame: FrameType) -> str:
    """Return where a frame is, as "package/module.py:line"; the same on every machine."""
    path = Path(frame.f_code.co_filename)
    top = path.parent
    while (top / "__init__.py").exists():
        top = top.parent
    return f"{path.relative_to(top)}:{frame.f_lineno}"
