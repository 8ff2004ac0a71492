"""The mails to shoppers as an owner looks at them: all of them, in a folder, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from django.core import mail as outgoing
from django.core.management import CommandError, call_command
from oscar.core.loading import get_model
from playwright.sync_api import Browser

from tests.test_dashboard_browser import ARTEFACTS
from tillgate.django.models import Order as ExpectedOrder
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World
from tillgate_oscar import mail

NAMES = {
    "order-placed",
    "voucher-waits",
    *(code.lower().removeprefix("tillgate_").replace("_", "-") for code in mail.EVENT_TYPES),
}
LANGUAGES = {"en": "ltr", "de": "ltr", "ja": "ltr", "ur": "rtl"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def languages(settings: Any) -> None:
    settings.LANGUAGES = [(code, code) for code in LANGUAGES]


def render(language: str, folder: Path) -> None:
    call_command("tillgate", "mails", "--language", language, "--folder", folder, verbosity=0)


@pytest.mark.usefixtures("languages", "world")
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_mail_is_written_as_text_and_html(language: str, tmp_path: Path) -> None:
    """In its language, with no value missing."""
    render(language, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}{ending}" for name in NAMES for ending in (".txt", ".html")
    }
    for name in NAMES:
        text = (tmp_path / f"{name}.txt").read_text("utf-8")
        html = (tmp_path / f"{name}.html").read_text("utf-8")
        subject, _, body = text.partition("\n\n")
        assert subject.startswith("Subject: ")
        assert "100042" in subject
        assert body.strip()
        assert f'<html lang="{language}" dir="{LANGUAGES[language]}"' in html
        for part in (text, html):
            assert "None" not in part
            assert "{{" not in part
    waits = (tmp_path / "order-waits.txt").read_text("utf-8")
    said = {"en": "not paid", "de": "zurückgelegt", "ja": "お取り置き", "ur": "محفوظ"}
    assert said[language] in waits
    assert "/payments/pay/example" in waits


@pytest.mark.usefixtures("languages")
def test_preview_stores_and_sends_nothing(world: World, tmp_path: Path) -> None:
    render("de", tmp_path)
    assert not get_model("order", "Order").objects.exists()
    assert not ExpectedOrder.objects.exists()
    assert outgoing.outbox == []


@pytest.mark.usefixtures("languages", "world")
def test_unknown_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"--language.*'tlh'.*en, de, ja, ur"):
        render("tlh", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("languages", "world")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_mails_in_a_browser(
    chromium: Browser,
    language: str,
    width: int,
    tmp_path: Path,
) -> None:
    """Each fits a phone, is accessible, and reads from the right side."""
    render(language, tmp_path)
    ARTEFACTS.mkdir(exist_ok=True)
    context = chromium.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    for name in sorted(NAMES):
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.screenshot(path=ARTEFACTS / f"mail-{name}-{language}-{width}.png", full_page=True)
        faults = {
            one["id"]: [node["html"][:120] for node in one["nodes"]]
            for one in Axe().run(page).response["violations"]
            if one["impact"] in ("serious", "critical")
        }
        # of Oscar's base template: no title, and a white on its own blue
        allowed = {"document-title", "color-contrast", "link-in-text-block"}
        assert set(faults) <= allowed, faults
        assert page.evaluate("getComputedStyle(document.body).direction") == LANGUAGES[language]
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, name
    context.close()
