"""A check that every text that an app marks is in its catalogue of a language, translated and
compiled.
"""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from django.utils.translation.template import templatize

STAFF_LANGUAGES: Final = (
    "de",
    "es",
)
"""The languages with catalogues that hold every text, for shoppers and for staff."""

SHOPPER_LANGUAGES: Final = (
    "bn",
    "fil",
    "fr",
    "id",
    "ja",
    "ko",
    "ms",
    "pt_BR",
    "th",
    "ur",
    "vi",
    "zh_Hans",
    "zh_Hant",
)
"""The other languages of the wallets' users: their catalogues hold the texts of shoppers alone."""

_MARKS: Final = ("_", "gettext", "gettext_lazy", "gettext_noop")
_MARKS_WITH_PLURAL: Final = ("ngettext", "ngettext_lazy")
_TEMPLATES: Final = (".html", ".txt")
_LITERAL: Final = r"""u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*\""""
_MARKED_IN_TEMPLATE: Final = re.compile(
    rf"\b(?:_|gettext|ngettext)\(\s*({_LITERAL})(?:\s*,\s*({_LITERAL}))?",
)
_FIELD: Final = re.compile(
    r'^(msgid|msgid_plural|msgstr(?:\[\d\])?) ((?:"(?:[^"\\]|\\.)*"\n?)+)',
    re.MULTILINE,
)
_PLACEHOLDER: Final = re.compile(r"%\(\w+\)\w")


def faults_of_catalogue(app: Path, language: str, within: Collection[str] = ("**/*",)) -> list[str]:
    """Return the faults of an app's catalogue of a language, a sentence each; an empty list is the
    good result.

    `app` is the folder of the Django app, with `locale` in it. A fault is a text that is missing,
    unused, fuzzy, not translated, or translated with other placeholders, and a compiled catalogue
    that differs from the source. `within` names the files with the texts of the catalogue, as glob
    patterns below `app`; a language for shoppers alone needs no texts of the staff's pages.
    """
    catalogue = app / "locale" / language / "LC_MESSAGES" / "django"
    marked, source = _marked(app, within), catalogue.with_suffix(".po").read_text("utf-8")
    entries = list(_entries(source))
    known = {text for texts, _ in entries for text in texts}
    faults = [] if marked else [f"nothing is marked in {app.name}"]
    faults += [f"not in django.po: {text!r}" for text in sorted(marked - known)]
    faults += [f"nothing uses it any more: {text!r}" for text in sorted(known - marked)]
    faults += [f"{word} in django.po" for word in ("fuzzy", "#~") if word in source]
    for texts, translations in entries:
        faults += [] if all(translations) else [f"not translated: {texts[0]!r}"]
        expected = sorted(_PLACEHOLDER.findall(texts[0]))
        faults += [
            f"other placeholders: {one!r}"
            for one in filter(None, translations)
            if sorted(_PLACEHOLDER.findall(one)) != expected
        ]
    if _compiled(catalogue.with_suffix(".mo")) != {
        texts[0]: translations for texts, translations in entries if any(translations)
    }:
        faults.append("django.mo is not made from django.po: run `django-admin compilemessages`")
    return faults


def _marked(app: Path, within: Collection[str]) -> set[str]:
    found: set[str] = set()
    for path in {path for pattern in within for path in app.glob(pattern)}:
        if path.suffix == ".py":
            found.update(_marked_in_python(path.read_text("utf-8")))
        elif (
            path.suffix in _TEMPLATES
        ):  # Django turns a template into text like Python, where its marked texts are calls
            calls = _MARKED_IN_TEMPLATE.findall(templatize(path.read_text("utf-8")))
            found.update(ast.literal_eval(literal) for call in calls for literal in call if literal)
    return found


def _marked_in_python(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            # also `translation.gettext`
            name = (
                node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            )
            for argument in node.args[
                : 2 if name in _MARKS_WITH_PLURAL else 1 if name in _MARKS else 0
            ]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def _entries(source: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each text of the source, and its plural if it has one, with its translations."""
    for entry in source.split("\n\n"):
        fields = [
            (name, "".join(map(ast.literal_eval, lines.splitlines())))
            for name, lines in _FIELD.findall(entry)
        ]
        texts = [text for name, text in fields if name.startswith("msgid")]
        if any(texts):
            yield texts, [text for name, text in fields if name.startswith("msgstr")]


def _compiled(path: Path) -> dict[str, list[str]]:
    with path.open("rb") as file:
        # the only way to list it
        catalogue: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    found: dict[str, list[str]] = {}
    for key, translation in catalogue.items():
        text = key if isinstance(key, str) else key[0]
        if text:
            found.setdefault(text, []).append(translation)
    return found
