"""The parts that the command lines of the long test runs share: readers of arguments, with helpful
errors, and an end by Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

import django
from django.core.exceptions import ImproperlyConfigured

from tillgate.errors import ConfigurationError
from tillgate.testing.driver import ShopDriver

__all__ = [
    "count",
    "driver",
    "ended_by_ctrl_c",
    "module",
    "ranges",
    "read_late",
    "results_file",
    "seeds",
    "size",
]

_T = TypeVar("_T")

_INTERRUPTED: Final = 130
"""The exit status of a process that SIGINT ended, as in shells."""


def count(text: str) -> int:
    """Read a count."""
    if re.fullmatch(r"[0-9]+", text) and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no count: give 1 or more")


def size(text: str) -> float:
    """Read a length or an amount: a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number < math.inf:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is too little, or no number: give one above 0")


def seeds(text: str) -> range:
    """Read a seed, or the first and the last of several."""
    found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no seed: give one such as 5, or a range such as 1-100",
        )
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins: give {last}-{first}")
    return range(first, last + 1)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in the form that `seeds` reads, with a comma between those that are not
    neighbours: "1-3, 7".
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)


def results_file(text: str) -> Path:
    """Read the name of a file for appended results; neither the file nor its folder needs to
    exist.
    """
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r} is a folder: name a file in it, such as {path / 'results.jsonl'}",
        )
    if in_the_way := next(
        (folder for folder in path.parents if folder.exists() and not folder.is_dir()),
        None,
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be made: {in_the_way} is a file, and no folder",
        )
    return path


def read_late(
    parser: argparse.ArgumentParser,
    option: str,
    read: Callable[[str], _T],
    text: str,
) -> _T:
    """Read an option's text with a reader that needs Django. An `ArgumentTypeError` ends the
    command line; other errors are raised.
    """
    try:
        return read(text)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument {option}: {error}")


def driver(text: str) -> ShopDriver:
    """Read MODULE:CLASS, set Django up, since a driver needs its shop's models, and return a driver
    of that class.
    """
    name, _, class_name = text.partition(":")
    if not (name and class_name):
        raise argparse.ArgumentTypeError(
            f"{text!r} names no driver: give module and class, such as "
            "tests.driver:LedgerShopDriver",
        )
    _set_up_django()
    there = vars(module(name))
    drivers: dict[str, type[ShopDriver]] = {
        one: value for one, value in there.items() if _is_driver(value)
    }
    if class_name in drivers:
        return drivers[class_name]()
    remedy = (
        f"give one of {', '.join(drivers)}"
        if drivers
        else "write a subclass of tillgate.testing.driver.ShopDriver there"
    )
    fault = (
        f"{class_name} of {name} is no driver"
        if class_name in there
        else f"{name} has no class {class_name}"
    )
    raise argparse.ArgumentTypeError(f"{fault}: {remedy}")


def _is_driver(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ShopDriver) and value is not ShopDriver


def module(name: str) -> ModuleType:
    """Import a module. A missing module is the argument's fault; an error inside the module is
    raised as it is.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise argparse.ArgumentTypeError(
            f"there is no module {error.name}: check the name, and run this in a folder that has it",
        ) from error


def _set_up_django() -> None:
    name = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not name:
        raise argparse.ArgumentTypeError(
            "a driver needs settings: name those of your tests in DJANGO_SETTINGS_MODULE, such as "
            "tests.settings",
        )
    try:
        module(name)
        django.setup()
    except (argparse.ArgumentTypeError, ConfigurationError, ImproperlyConfigured) as error:
        raise argparse.ArgumentTypeError(
            f"a driver needs settings, and DJANGO_SETTINGS_MODULE is {name}: {error}",
        ) from error


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process with one line. Recorded results are kept."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; what --results has noted stays\n")
        sys.exit(_INTERRUPTED)
