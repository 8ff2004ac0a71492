"""The random part of references while a cassette runs: new ones in each recording (I8), those on
file in a replay.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final

_LENGTH: Final = 13  # as many characters as tillgate.new_reference draws


class References:
    """Replaces the module `secrets` in the code that makes references: `choice` returns the
    characters of random parts.

    A recording remembers them, and scrubbing writes `0000000000001` and so on in their place. A
    replay uses those.
    """

    def __init__(self, *, is_recording: bool) -> None:
        self.stand_ins: dict[str, str] = {}
        self._is_recording = is_recording
        self._lock = threading.Lock()
        self._count = 0
        # a reference is drawn character by character, perhaps in several threads
        self._left = threading.local()

    def choice(self, alphabet: str) -> str:
        """Return the next character of a random part."""
        left: list[str] = getattr(self._left, "characters", [])
        if not left:
            left = self._left.characters = list(self._next(alphabet))
        return left.pop(0)

    def _next(self, alphabet: str) -> str:
        with self._lock:
            self._count += 1
            stand_in = f"{self._count:0{_LENGTH}}"
            if not self._is_recording:
                return stand_in
            drawn = "".join(secrets.choice(alphabet) for _ in range(_LENGTH))
            self.stand_ins[drawn] = stand_in
            return drawn
