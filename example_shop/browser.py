"""A browser without a window: follows links and submits forms as a shopper's browser does, cookies
and redirects included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

import httpx

__all__ = ["Browser", "Form", "Page", "PageProblem"]

_TIMEOUT_SECONDS: Final = 60.0
_MOST_REDIRECTS: Final = 20
_AT_ONCE: Final = "0; url="
"""The header `Refresh` of a page that a browser leaves immediately."""


class PageProblem(Exception):
    """A page differs from a shopper's expectation; the text names the page and the fault."""


@dataclass(slots=True)
class Form:
    """A form as it stands on a page: its address, and the fields that it would send untouched."""

    action: str
    method: str
    id: str
    fields: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was loaded: its address, its words, its links and its forms."""

    url: str
    status: int
    heading: str
    text: str
    links: Mapping[str, str]
    forms: tuple[Form, ...]

    def link(self, words: str) -> str:
        """Return where the link with some words leads."""
        for shown, address in self.links.items():
            if words in shown:
                return address
        raise PageProblem(f"{self.url} has no link {words!r}; it says {self.heading!r}")

    def form(self, with_field: str, value: str | None = None) -> Form:
        """Return the form that has a field, and, if wanted, a value of it."""
        for form in self.forms:
            if with_field in form.fields and value in (None, form.fields[with_field]):
                return form
            if value is not None and value in form.choices.get(with_field, ()):
                return form
        raise PageProblem(
            f"{self.url} has no form with {with_field}={value or '…'}; it says {self.heading!r}: "
            f"{self.text[:300]}",
        )


class Browser:
    """Loads pages and submits forms; a page with an error is a `PageProblem`."""

    def __init__(self, home: str, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        agent = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
        # all is on this machine
        self._client = httpx.Client(
            base_url=home,
            timeout=timeout_seconds,
            headers=agent,
            trust_env=False,
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def open(self, address: str) -> Page:
        """Load a page."""
        return self._show(self._client.get(address))

    def submit(self, page: Page, form: Form, **values: str) -> Page:
        """Submit a form of a page with some fields changed."""
        return self._show(self._sent(page, form, values))

    def submit_and_close(self, page: Page, form: Form, **values: str) -> None:
        """Submit a form and close the tab before its answer leads anywhere."""
        self._sent(page, form, values)

    def _sent(self, page: Page, form: Form, values: Mapping[str, str]) -> httpx.Response:
        content, address = {**form.fields, **values}, urljoin(page.url, form.action)
        if form.method == "get":
            return self._client.get(address, params=content)
        # Django wants to know where a form of an https page came from; browsers tell for every
        # page.
        return self._client.post(address, data=content, headers={"Referer": page.url})

    def _show(self, response: httpx.Response) -> Page:
        for _ in range(_MOST_REDIRECTS):
            if response.next_request is not None:
                response = self._client.send(response.next_request)
            elif (refresh := response.headers.get("Refresh", "")).startswith(_AT_ONCE):
                response = self._client.get(refresh.removeprefix(_AT_ONCE))
            else:
                break
        else:
            raise PageProblem(f"{response.url} redirects for ever")
        reader = _Reader()
        reader.feed(response.text)
        page = Page(
            str(response.url),
            response.status_code,
            reader.heading.strip(),
            " ".join(reader.words.split()),
            reader.links,
            tuple(reader.forms),
        )
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise PageProblem(f"{page.url} answered HTTP {page.status}: {page.text[:300]}")
        return page


class _Reader(HTMLParser):
    """Reads the texts that a shopper would see, and the forms."""

    _SILENT: Final = frozenset({"script", "style", "noscript", "svg"})

    def __init__(self) -> None:
        super().__init__()
        self.heading, self.words = "", ""
        self.links: dict[str, str] = {}
        self.forms: list[Form] = []
        self._inside: list[str] = []
        self._link = ("", "")
        self._select: tuple[str, bool] | None = None
        self._area: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in self._SILENT or tag == "h1":
            self._inside.append(tag)
        elif tag == "a":
            self._link = (given.get("href", ""), "")
        elif tag == "form":
            self.forms.append(
                Form(
                    given.get("action", ""),
                    given.get("method", "get").lower(),
                    given.get("id", ""),
                ),
            )
        elif self.forms:
            self._read_field(tag, given)

    def _read_field(self, tag: str, given: dict[str, str]) -> None:
        form, name = self.forms[-1], given.get("name", "")
        if tag == "select":
            self._select = (name, False)
            form.fields[name] = ""
        elif tag == "option" and self._select:
            name, is_chosen = self._select
            form.choices.setdefault(name, []).append(given.get("value", ""))
            if "selected" in given or not (is_chosen or form.fields[name]):
                form.fields[name] = given.get("value", "")
                self._select = (name, "selected" in given)
        elif tag == "textarea" and name:
            self._area = name
            form.fields[name] = ""
        elif (
            tag == "input"
            and name
            and given.get("type") not in ("submit", "button", "image", "file")
        ):
            if given.get("type") in ("radio", "checkbox"):
                form.choices.setdefault(name, []).append(given.get("value", "on"))
                if "checked" not in given:
                    return
            form.fields[name] = given.get("value", "on" if given.get("type") == "checkbox" else "")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()
        elif tag == "a" and self._link[0]:
            self.links.setdefault(" ".join(self._link[1].split()), self._link[0])
            self._link = ("", "")
        elif tag == "select":
            self._select = None
        elif tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area and self.forms:
            self.forms[-1].fields[self._area] += data
        elif not any(tag in self._SILENT for tag in self._inside):
            self.words += data + " "
            if "h1" in self._inside:
                self.heading += data
            if self._link[0]:
                self._link = (self._link[0], self._link[1] + data)
