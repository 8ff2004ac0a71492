"""The mails to shoppers as an owner looks at them: all of them, in a folder, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core import mail as outgoing
from django.core.management import CommandError, call_command
from oscar.core.loading import get_model
from playwright.sync_api import Browser

from tests.looking import chromium, look  # noqa: F401  # a fixture
from tillgate.django.models import Order as ExpectedOrder
from tillgate.testing.world import World
from tillgate_oscar import mail

NAMES = {
    "order-placed",
    "voucher-waits",
    *(code.lower().removeprefix("tillgate_").replace("_", "-") for code in mail.EVENT_TYPES),
}
OF_MAILS = frozenset(
    {
        *("document-title", "color-contrast", "link-in-text-block"),  # of Oscar's base template
        *("landmark-one-main", "page-has-heading-one", "region"),  # a mail has no landmarks
    },
)
LANGUAGES = {"en": "ltr", "de": "ltr", "ja": "ltr", "ur": "rtl"}


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
def test_mails_in_a_browser(
    chromium: Browser,  # noqa: F811
    language: str,
    tmp_path: Path,
) -> None:
    """Each fits a phone, is accessible, and reads from the right side."""
    render(language, tmp_path)
    page = chromium.new_page()
    for name in sorted(NAMES):
        page.goto((tmp_path / f"{name}.html").as_uri())
        look(page, f"mail-{name}-{language}", "html", OF_MAILS)
        assert page.evaluate("getComputedStyle(document.body).direction") == LANGUAGES[language]
    page.close()
