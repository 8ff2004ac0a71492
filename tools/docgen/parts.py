"""Generated parts of pages: between two marks that a reader of the page does not see."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "first_sentence", "is_written", "linked", "replaced", "table_of", "write"]

ROOT: Final = Path(__file__).parents[2]


def first_sentence(paragraph: str) -> str:
    """Return the first sentence of a paragraph, on one line."""
    return re.split(r"(?<=[.])\s", " ".join(paragraph.split()), maxsplit=1)[0]


def linked(paragraph: str, targets: Mapping[str, str]) -> str:
    """Return a paragraph of a docstring in the width of a page; each name in it becomes a link to
    its target.
    """
    text = re.sub(
        r"`([\w.]+)`",
        lambda found: f"[{found[0]}]({targets[found[1]]})" if found[1] in targets else found[0],
        paragraph,
    )
    return textwrap.fill(
        text,
        width=140,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def replaced(page: str, name: str, command: str, text: str) -> str:
    """Return a page with its generated part of a name replaced by a text; the first mark says which
    command wrote it.
    """
    begin, end = f"<!-- {name}: written by `{command}` -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page has no part between {begin} and {end}")
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"


def table_of(head: Sequence[str], rows: Iterator[list[str]] | list[list[str]]) -> Iterator[str]:
    """Yield the lines of a table of Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows
    )


def write(pages: dict[Path, str]) -> None:
    """Write pages that differ, and say which."""
    for path, text in pages.items():
        if not is_written(path, text):
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


def is_written(path: Path, text: str) -> bool:
    """Tell whether a page is there as a command would write it."""
    return path.is_file() and path.read_text("utf-8") == text
