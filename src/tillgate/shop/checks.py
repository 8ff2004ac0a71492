"""System checks: functions that yield errors and warnings, registered with Django under the
plugin's app.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.core import checks
from django.db import DatabaseError

from tillgate.django import checks as ours

__all__ = ["CheckSet", "Found", "report_errors_as_warnings"]

Found = Iterator[checks.CheckMessage]
_Area = Callable[[], Found]


def report_errors_as_warnings(
    remedies: Mapping[int, str] | None = None,
    notes: Collection[int] = (),
) -> None:
    """Let Tillgate's errors stop no command: the framework runs more than payments. The ids
    stay.

    `remedies` are the hints of warnings, by number, where the framework has settings of its own.
    `notes` are numbers of warnings that cannot be corrected there: the doctor passes with them.
    """
    ours.report_errors_as_warnings(remedies, notes)


class CheckSet:
    """The checks of one app. Decorate each check with `area`, or with `database_area` where it
    reads rows.

    A check yields `error(1, message, hint)` or `warning(1, message, hint)`, with the ids
    `<label>.E001` and `<label>.W001`. A check of rows runs where Django checks databases, and is
    silent before the first migration.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.areas: list[_Area] = []
        self.database_areas: list[_Area] = []
        checks.register(lambda app_configs, **_: self.run(app_configs), label)
        checks.register(
            lambda app_configs, databases, **_: self.run_on_databases(app_configs, databases),
            label,
            checks.Tags.database,
        )

    def error(self, number: int, message: str, hint: str) -> checks.Error:
        """Return an error with the id of its number."""
        return checks.Error(message, hint=hint, id=f"{self.label}.E{number:03}")

    def warning(self, number: int, message: str, hint: str) -> checks.Warning:
        """Return a warning with the id of its number."""
        return checks.Warning(message, hint=hint, id=f"{self.label}.W{number:03}")

    def area(self, check: _Area) -> _Area:
        """Add a check of settings and apps."""
        self.areas.append(check)
        return check

    def database_area(self, check: _Area) -> _Area:
        """Add a check of rows."""
        self.database_areas.append(check)
        return check

    def run(self, app_configs: Sequence[Any] | None) -> list[checks.CheckMessage]:
        """Return the findings of the checks of settings and apps."""
        return (
            [message for area in self.areas for message in area()]
            if self._is_asked(app_configs)
            else []
        )

    def run_on_databases(
        self,
        app_configs: Sequence[Any] | None,
        databases: Sequence[str] | None,
    ) -> list[checks.CheckMessage]:
        """Return the findings of the checks of rows; before the first migration there are none."""
        found: list[checks.CheckMessage] = []
        if databases and self._is_asked(app_configs):
            with suppress(DatabaseError):
                found += [message for area in self.database_areas for message in area()]
        return found

    def _is_asked(self, app_configs: Sequence[Any] | None) -> bool:
        return app_configs is None or any(config.label == self.label for config in app_configs)
