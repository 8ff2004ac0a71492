"""The documentation: it has an entry for everything that exists, it names nothing that does not,
and its examples run.
"""

from __future__ import annotations

import ast
import code
import dataclasses
import importlib
import inspect
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

import tillgate
from proving.__main__ import PROOFS
from tillgate import (
    Account,
    Dialect,
    GatewayProfile,
    PaymentRequest,
    RefundRequest,
    gateways,
    hooks,
    lifecycle,
    shop,
    testing,
)
from tillgate.cli import EXIT_CODES, main
from tillgate.hooks import values
from tillgate.sandbox import Options, Sandbox
from tillgate.scaffold import write_plugin
from tillgate.wire import signing

ROOT = Path(__file__).parents[1]
REFERENCE = [
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "src" / "tillgate").glob("*/*.md")),
]
NOT_OURS = {"artefacts", "build", "dist", "mutants", "node_modules"}
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            page
            for folder in ROOT.glob("[!.]*/")
            if folder.name not in NOT_OURS
            for page in folder.rglob("*.md")
        ),
    ],
)
SHOWN_IN_PARTS = {
    "README.md",
    "docs/django-payments.md",
    "docs/how-to/run-the-worker.md",
    "docs/how-to/take-other-currencies.md",
    "docs/how-to/write-a-shop-plugin.md",
    "src/tillgate/sandbox/README.md",
    "docs/saleor.md",
    "docs/tutorial/stripe-in-oscar.md",
    "docs/tutorial/your-own-shop.md",
    "plugins/django-payments/README.md",
    "plugins/oscar/README.md",
    "plugins/payu/README.md",
    "plugins/stripe/README.md",
}
"""Pages of fragments, which only have to compile."""
PUBLISHED_ADDRESS = "127.0.0.1:8181"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(text: str, *languages: str) -> list[str]:
    """Return the code blocks written in one of the languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for language, block in found if language in languages]


def prose(text: str) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)


def section(text: str, heading: str) -> str:
    """Return the text under a heading, down to the next one of its level or above."""
    lines = text.splitlines()
    start = next(
        (
            number
            for number, line in enumerate(lines)
            if re.fullmatch(rf"#+ {re.escape(heading)}", line)
        ),
        None,
    )
    assert start is not None, f"no heading {heading!r}"
    level = len(lines[start].partition(" ")[0])
    ends = (
        number
        for number in range(start + 1, len(lines))
        if re.match(rf"#{{1,{level}}} ", lines[number])
    )
    return "\n".join(lines[start + 1 : next(ends, len(lines))])


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of every row of every table by each name that its first cell has in code."""
    found = {}
    for line in prose(text).splitlines():
        if line.startswith("|"):
            first, *others = [cell.strip() for cell in line.strip("|").split("|")]
            found.update(
                {re.split(r"[ (]", name)[0]: others for name in re.findall(r"`([^`]+)`", first)},
            )
    return found


def entries(text: str) -> set[str]:
    """Return the entries of a text: its headings, the code that a paragraph or a list's line begins
    with, the first cells of tables.
    """
    leading = re.findall(r"^(?:- )?`([^`(]+)", prose(text), re.MULTILINE)
    return {*headings(text), *leading, *rows(text)}


def missing(names: Iterable[str], *texts: str) -> list[str]:
    explained = set().union(*map(entries, texts))
    return sorted(set(names) - explained)


def names_in_code(text: str) -> str:
    """Return everything that a page shows in code for its readers to type, one piece a line; Python
    left out.
    """
    return "\n".join(
        [
            *blocks(text, "bash", "console", "text", "toml", ""),
            *re.findall(r"`([^`\n]+)`", prose(text)),
        ],
    )


REFERENCE_TEXTS = [page.read_text("utf-8") for page in REFERENCE]
NO_SUCH_NAME = "tillgate_no_such_name"


# Everything that exists has its entry -------------------------------------------------------------


@pytest.mark.parametrize("name", [name_of(page) for page in REFERENCE])
def test_a_name_that_nothing_explains_is_missed(name: str) -> None:
    text = (
        read(name)
        + f"\nSome words about `{NO_SUCH_NAME}`.\n\n```text\n# {NO_SUCH_NAME}\n```\n\n| cell | "
        f"`{NO_SUCH_NAME}` |\n"
    )
    assert missing([NO_SUCH_NAME], text) == [NO_SUCH_NAME]
    assert missing([NO_SUCH_NAME], f"{text}\n## {NO_SUCH_NAME}\n") == []
    assert missing([NO_SUCH_NAME], f"{text}\n| `{NO_SUCH_NAME}(a, b)` | what it does |\n") == []


@pytest.mark.parametrize(
    "module",
    [tillgate, gateways, hooks, shop, testing],
    ids=lambda module: module.__name__,
)
def test_reference_has_every_public_name(module: ModuleType) -> None:
    assert missing(module.__all__, *REFERENCE_TEXTS) == []


@pytest.mark.parametrize(
    ("module", "page"),
    [(hooks, "docs/reference/hooks.md"), (testing, "src/tillgate/testing/README.md")],
)
def test_module_pages_have_their_names(
    module: ModuleType,
    page: str,
) -> None:
    """Every public name of a module has an entry on the page of that module."""
    assert missing(module.__all__, read(page)) == []


def test_errors_match_their_headings() -> None:
    """Every error has a heading, and every heading of an error names one that exists."""
    assert set(headings(read("docs/reference/errors.md"))) == {"Errors", *tillgate.errors.__all__}


def test_error_tree_matches_classes() -> None:
    drawing = blocks(read("docs/reference/errors.md"), "text")[0]
    drawn: set[str] = set()
    above: list[str] = []
    for line in drawing.splitlines():
        indent, name = re.match(r"([│├└─ ]*)(\w+)", line).groups()  # type: ignore[union-attr]
        del above[len(indent) // 4 :]
        assert [
            base.__name__
            for base in getattr(tillgate, name).__mro__
            if base.__name__ in tillgate.errors.__all__
        ] == [
            name,
            *above[::-1],
        ]
        above.append(name)
        drawn.add(name)
    assert drawn == set(tillgate.errors.__all__)


OF_GATEWAYS = [
    name
    for name in tillgate.errors.__all__
    if tillgate.GatewayError in getattr(tillgate.errors, name).__mro__[1:]
]


@pytest.mark.parametrize("name", OF_GATEWAYS)
def test_error_constructors_show_their_parameters(
    name: str,
) -> None:
    """The page covers every error that a gateway plugin raises."""
    kind = getattr(tillgate.errors, name)
    (example,) = blocks(read("docs/reference/errors.md"), "python")
    line = re.search(rf"^{name}\((.*)\)  # (.*)$", example, re.MULTILINE)
    assert line
    shown = line[2].split(", ")
    assert shown == list(inspect.signature(kind).parameters)[: len(shown)]
    assert len(ast.parse(f"f({line[1]})", mode="eval").body.args) == len(shown)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", tillgate.errors.__all__)
def test_every_attribute_of_an_error_is_explained(name: str) -> None:
    kind = getattr(tillgate.errors, name)
    text = section(read("docs/reference/errors.md"), name)
    if kind.__init__ not in {base.__init__ for base in kind.__bases__}:
        assert [
            name for name in list(inspect.signature(kind).parameters) if f"`{name}`" not in text
        ] == []


@pytest.mark.parametrize("kind", [tillgate.Gateway, tillgate.AsyncGateway])
def test_every_method_of_the_clients_is_explained(kind: type[object]) -> None:
    assert (
        missing(
            [name for name in vars(kind) if not name.startswith("_")],
            read("docs/reference/gateway.md"),
        )
        == []
    )


def test_signature_and_notification_names_are_explained() -> None:
    page = read("src/tillgate/wire/README.md")
    assert (
        missing(
            [name for name in signing.__all__ if name != "SIGNATURE"],
            section(page, "Signatures"),
        )
        == []
    )
    names = [item.name for item in dataclasses.fields(tillgate.Notification)] + [
        "signature",
        "evidence",
    ]
    assert (
        missing(
            [*names, *tillgate.NotificationSignature.__members__],
            section(page, "Notifications"),
        )
        == []
    )


def test_every_fixture_is_explained_and_no_other() -> None:
    fixtures = re.findall(
        r"^@pytest\.fixture\ndef (\w+)",
        read("src/tillgate/testing/fixtures.py"),
        re.MULTILINE,
    )
    assert set(rows(section(read("src/tillgate/testing/README.md"), "Fixtures"))) == set(fixtures)


def commands() -> dict[str, set[str]]:
    """Return every command with its options."""
    return {
        name: {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in _spellings(parameter)
        }
        for name, command in main.commands.items()
    }


def _spellings(option: click.Option) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def explained_options(command: str) -> set[str]:
    page = read("docs/reference/cli.md")
    text = section(page, f"tillgate {command}")
    own = rows(text)
    shared = rows(section(page, "Account options")) if "(#account-options)" in text else {}
    return {name for name in {**own, **shared} if name.startswith("--")}


def test_commands_match_their_headings() -> None:
    """Every command has a heading, and every heading of a command names one that exists."""
    found = [
        heading.removeprefix("tillgate ")
        for heading in headings(read("docs/reference/cli.md"))
        if heading.startswith("tillgate ")
    ]
    assert sorted(found) == sorted(commands())


@pytest.mark.parametrize("command", commands())
def test_all_command_options_are_explained(command: str) -> None:
    """The page explains no option that does not exist."""
    assert explained_options(command) == commands()[command]


def test_every_exit_code_is_explained() -> None:
    explained = rows(section(read("docs/reference/cli.md"), "Exit codes"))
    assert set(explained) == {str(code) for code in (0, 1, *EXIT_CODES.values())}


def test_json_error_fields_are_explained() -> None:
    explained = rows(section(read("docs/reference/cli.md"), "Errors as JSON"))
    abstract = {"TillgateError", "GatewayError"}
    assert {
        name: set(re.findall(r"`(\w+)`", cells[0]))
        for name, cells in explained.items()
        if name != "error"
    } == {
        name: set(inspect.signature(getattr(tillgate.errors, name)).parameters) - {"value"}
        for name in tillgate.errors.__all__
        if name not in abstract
    }


def test_every_invariant_names_existing_tests() -> None:
    page = ROOT / "docs" / "explanation" / "how-it-works.md"
    listed = re.findall(
        r"^\| I(\d+) \|(.*)$",
        section(page.read_text("utf-8"), "Invariants"),
        re.MULTILINE,
    )
    assert [number for number, _ in listed] == [str(number) for number in range(1, 14)]
    for number, row in listed:
        files = [page.parent / link for link in re.findall(r"\]\(([^)]+)\)", row)]
        assert any("django" in file.parts for file in files), number
        assert [
            file
            for file in files
            if not re.search(rf"def test_(?:i\d+_)*i{number}_", file.read_text("utf-8"))
        ] == [], number


def test_every_account_setting_is_explained() -> None:
    """Each setting has its default, option and variable."""
    explained = rows(section(read("docs/reference/account.md"), "Settings"))
    assert list(explained) == list(Account.model_fields)
    options = commands()["doctor"]
    for name, field in Account.model_fields.items():
        default, _, _, option, variable = explained[name]
        shown = getattr(field.default, "name", field.default) if field.default != "" else '""'
        assert default == ("required" if field.is_required() else f"`{shown}`"), name
        assert variable == f"`TILLGATE_{name.upper()}`"
        assert set(re.findall(r"--[a-z-]+", option)) <= options
        assert option or f"--{name.replace('_', '-')}" not in options


def _shown(value: object) -> str:
    if isinstance(value, Enum):
        return f"`{type(value).__name__}.{value.name}`"
    if isinstance(value, frozenset | tuple):
        texts = (
            sorted(value)
            if isinstance(value, frozenset)
            else [getattr(item, "code", item) for item in value]
        )
        return ", ".join(f'`"{text}"`' for text in texts) or "none"
    if isinstance(value, bool):
        return f"`{value}`"
    return "required" if value is dataclasses.MISSING else f'`"{value}"`'


def test_every_dialect_field_is_explained() -> None:
    """Each field has its default."""
    explained = rows(section(read("src/tillgate/wire/dialect.md"), "Fields"))
    assert {
        name: explained.get(name, ["", "not there"])[1]
        for name in (item.name for item in dataclasses.fields(Dialect))
    } == {item.name: _shown(item.default) for item in dataclasses.fields(Dialect)}
    assert list(explained) == [item.name for item in dataclasses.fields(Dialect)]


def test_every_field_of_a_profile_is_explained() -> None:
    explained = rows(section(read("src/tillgate/gateways/README.md"), "Profile fields"))
    fields = {item.name: _shown(item.default) for item in dataclasses.fields(GatewayProfile)}
    assert {name: cells[0] for name, cells in explained.items()} == fields


def test_unspecified_behaviours_name_existing_tests() -> None:
    listed = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section(
            read("src/tillgate/wire/README.md"), "Unspecified behaviour"
        ).splitlines()
        if re.match(r"\| \d", line)
    ]
    assert [cells[0] for cells in listed] == [str(number) for number in range(1, 21)]
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for number, _, answer, held_by in listed:
        tests = re.findall(r"`(\w+)`", held_by)
        assert tests, number
        assert [test for test in tests if f"def {test}(" not in sources] == [], number
        known = {item.name for item in dataclasses.fields(Dialect)}
        assert answer.startswith("Fixed:") or known & set(re.findall(r"`(\w+)`", answer)), number


MESSAGES: list[type[Any]] = [
    PaymentRequest,
    RefundRequest,
    tillgate.Goods,
    tillgate.CreatedPayment,
    tillgate.Transaction,
    tillgate.Refunded,
    lifecycle.PaymentFacts,
    lifecycle.Decision,
    # which is a choice
    *(getattr(values, name) for name in values.__all__ if name != "PaidOutcome"),
]


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_field_of_a_message_is_explained(kind: type[Any]) -> None:
    page = next(text for text in REFERENCE_TEXTS if kind.__name__ in headings(text))
    fields = (
        kind.model_fields
        if hasattr(kind, "model_fields")
        else [item.name for item in dataclasses.fields(kind)]
    )
    assert list(rows(section(page, kind.__name__))) == list(fields)


def test_wire_names_match_sent_requests() -> None:
    page = read("src/tillgate/wire/messages.md")
    pay = PaymentRequest(
        reference="A-1",
        currency="USD",
        amount="1.00",
        method="alipay",
        terminal="WAP",
        ipn_url="https://shop.example/ipn",
        callback_url="https://shop.example/back",
        description="tea",
        goods_info=[{"goods_name": "tea", "quantity": "1"}],
    )
    refund = RefundRequest(
        reference="A-1",
        currency="USD",
        amount="1.00",
        ipn_url="https://shop.example/ipn",
    )
    for request in (pay, refund):
        explained = rows(section(page, type(request).__name__))
        parameters = {
            name
            for path in ("pay", "refund")
            for name in getattr(tillgate.REFERENCE, f"{path}_parameters")
        }
        version_3 = {
            name
            for path in ("pay", "refund")
            for name in getattr(tillgate.V3, f"{path}_parameters")
        } - parameters
        assert {cells[0] for cells in explained.values()} - {"", "currency"} - version_3 == set(
            request.parameters(),
        ) - {"currency"}


@pytest.mark.parametrize(
    "kind",
    [tillgate.PaymentMethod, tillgate.Terminal, tillgate.TransactionStatus],
)
def test_every_value_of_a_choice_is_named(kind: type[Enum]) -> None:
    named = re.findall(r"`(\w+)`", section(read("src/tillgate/wire/messages.md"), kind.__name__))
    assert {
        item.name if kind is tillgate.TransactionStatus else item.value for item in kind
    } <= set(named)


@pytest.mark.parametrize(
    ("page", "heading", "kind"),
    [
        ("lifecycle", "Payments", lifecycle.PaymentStatus),
        ("lifecycle", "Refunds", lifecycle.RefundStatus),
        ("lifecycle", "Review", lifecycle.ReviewReason),
        ("hooks", "PaidOutcome", values.PaidOutcome),
    ],
)
def test_all_statuses_and_reasons_are_explained(
    page: str,
    heading: str,
    kind: type[Enum],
) -> None:
    """The page explains no others."""
    explained = set(rows(section(read(f"docs/reference/{page}.md"), heading))) - {kind.__name__}
    assert explained == {item.value for item in kind}


def test_decide_rules_name_every_reason() -> None:
    """Each reason in an answer is named by a rule of decide."""
    rules = set(
        re.findall(r"`([a-z-]+)`", section(read("src/tillgate/lifecycle/README.md"), "interpret")),
    )
    given = set(
        re.findall(
            r"ReviewReason\.([A-Z_]+)",
            inspect.getsource(sys.modules["tillgate.lifecycle.interpret"]),
        ),
    )
    assert given
    assert {str(lifecycle.ReviewReason[name]) for name in given} <= rules


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("Payment", lifecycle.PAYMENT_TRANSITIONS),
        ("Refund", lifecycle.REFUND_TRANSITIONS),
        ("Order", lifecycle.ORDER_TRANSITIONS),
        ("Outbox event", lifecycle.OUTBOX_TRANSITIONS),
        ("Review", lifecycle.REVIEW_TRANSITIONS),
    ],
    ids=["payment", "refund", "order", "outbox", "review"],
)
def test_drawn_transitions_match_table(
    heading: str,
    table: Mapping[str, frozenset[str]],
) -> None:
    (drawing,) = blocks(section(read("ARCHITECTURE.md"), heading), "mermaid")
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", drawing, re.MULTILINE))
    assert drawn == {(str(old), str(new)) for old, news in table.items() for new in news}


def test_place_table_names_correct_files() -> None:
    """Each name in the table is defined in the file next to it."""
    places = re.findall(
        r"^\| (.+?) \| (.+) \|$",
        section(read("ARCHITECTURE.md"), "Where is ..."),
        re.MULTILINE,
    )[2:]
    assert len(places) > 10
    for sought, place in places:
        files = re.findall(r"\]\((src/[^)]+\.py)\)", place)
        names = re.findall(r"`(\w+)`", place)
        assert files, sought
        assert names, sought
        defined = {
            name
            for file in files
            for name in re.findall(r"^(?:def |class |)(\w+)(?:\(|:| =)", read(file), re.MULTILINE)
        }
        assert set(names) <= defined, sought


def test_journeys_name_existing_operations() -> None:
    """Their hooks and decisions exist too."""
    journeys = blocks(section(read("ARCHITECTURE.md"), "Three journeys"), "mermaid")
    assert len(journeys) == 3
    sources = "\n".join(
        path.read_text("utf-8") for path in (ROOT / "src" / "tillgate").rglob("*.py")
    )
    named = {name for journey in journeys for name in re.findall(r"[a-z]+(?:_[a-z]+)+", journey)}
    assert {
        "start_payment",
        "tillgate_pay",
        "receive_payment_notification",
        "tillgate_query",
        "tillgate_refund",
    } <= named
    assert [name for name in sorted(named) if f"def {name}(" not in sources] == []


def test_architecture_names_all_gateway_calls() -> None:
    """The app calls the gateway in three places."""
    (row,) = [
        line for line in read("ARCHITECTURE.md").splitlines() if "its callers in the app" in line
    ]
    named = {
        (name, Path(file).name)
        for name, file in re.findall(r"`(\w+)` in \[`[^`]+`\]\(([^)]+)\)", row)
    }
    found = set()
    for path in (ROOT / "src" / "tillgate" / "django").rglob("*.py"):
        for function in re.split(r"^(?=def )", path.read_text("utf-8"), flags=re.MULTILINE):
            if re.search(r"\bhooks\.(?:pay|query|refund)\(", function):
                found.add((re.match(r"def (\w+)", function)[1], path.name))  # type: ignore[index]
    assert found == named


def variables() -> set[str]:
    """Return every variable of the environment that the core reads."""
    sources = [
        path for path in (ROOT / "src" / "tillgate").rglob("*.py") if "django" not in path.parts
    ]
    found = {
        name
        for path in sources
        for name in re.findall(r"TILLGATE_[A-Z_]*[A-Z]", path.read_text("utf-8"))
    }
    return found | {f"TILLGATE_{name.upper()}" for name in Account.model_fields}


def test_every_variable_of_the_environment_is_explained() -> None:
    page = read("docs/reference/account.md")
    explained = {cells[-1].strip("`") for cells in rows(section(page, "Settings")).values()} | set(
        rows(section(page, "Other variables")),
    )
    assert explained == variables()


# Nothing is named that does not exist -------------------------------------------------------------


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def slug(heading: str) -> str:
    """Return the anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    text = prose(page.read_text("utf-8"))
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|href)="([^"]+)"', text)]
    dead = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        found = target.exists() and (
            not anchor or anchor in map(slug, headings(target.read_text("utf-8")))
        )
        dead += [] if found else [link]
    assert dead == []


@every_page
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = re.findall(
        r"(?:^|[ =])make ([a-z-]+)",
        names_in_code(page.read_text("utf-8")),
        re.MULTILINE,
    )
    assert set(named) <= targets


@every_page
def test_every_named_session_and_proof_exists(page: Path) -> None:
    code = names_in_code(page.read_text("utf-8"))
    named = re.findall(r"nox (?:--install-only )?-s ([^`\n]+)", code)
    sessions = {name for words in named for name in shlex.split(words.partition(" -- ")[0])}
    known = re.findall(r"^def (\w+)\(session", read("noxfile.py"), re.MULTILINE)
    assert {re.split(r"[(-]", name)[0] for name in sessions} <= set(known)
    assert set(re.findall(r"python -m proving ([a-z-]+)", code)) <= {*PROOFS, "all"}


@every_page
def test_named_commands_and_options_exist(page: Path) -> None:
    known = commands()
    for command, arguments in re.findall(
        r"^(?:\$ |\.venv/bin/)?tillgate ([a-z][a-z-]*)\b((?:[^\n\\]|\\\n)*)",
        names_in_code(page.read_text("utf-8")),
        re.MULTILINE,
    ):
        assert command in known
        assert set(re.findall(r" (--[a-z-]+)", arguments)) <= known[command], command


def test_every_worker_that_cron_starts_ends() -> None:
    found = [
        line
        for page in PAGES
        for line in re.findall(r"^(?:[\d*/,-]+ ){5}.*$", page.read_text("utf-8"), re.MULTILINE)
    ]
    workers = [line for line in found if "tillgate worker" in line]
    assert workers
    assert [line for line in workers if " --once" not in line] == []


NOT_PYTHON = re.compile(
    r"tillgate\.(?:toml|profiles|[EW]\d{3}|run_\w+|events|outcome|resolve_review|refund_payment|gateway\.duration)",
)
"""A file, system checks, Celery tasks, a logger and metrics: pages of their own tests name them."""


@every_page
def test_every_dotted_name_and_variable_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    code_of_page = "\n".join([names_in_code(text), *blocks(text, "python")])
    for dotted in set(re.findall(r"\btillgate(?:\.[A-Za-z_]\w*)+", code_of_page)):
        assert _exists(dotted) or NOT_PYTHON.fullmatch(dotted), dotted
    # which name settings and mails of their own
    if not name_of(page).startswith(("plugins/", "docs/oscar", "docs/saleor")):
        assert set(re.findall(r"TILLGATE_[A-Z_]*[A-Z]", text)) <= variables()


def _exists(dotted: str) -> bool:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)
        return found is not None
    return False


@pytest.mark.parametrize(
    "dotted",
    ["tillgate.no_such_module", "tillgate.hooks.no_such_name", "tillgate.Gateway.no_such_method"],
)
def test_missing_dotted_name_is_noticed(dotted: str) -> None:
    assert not _exists(dotted)


@every_page
def test_pages_contain_no_local_paths(page: Path) -> None:
    """No page shows a path of the machine it was written on."""
    assert re.findall(r"(?<![\w.])/(?:root|home|work|Users|tmp)/", page.read_text("utf-8")) == []


def test_every_page_is_in_the_index() -> None:
    linked = {
        (ROOT / "docs" / link).resolve()
        for link in re.findall(r"\]\(([^)#\s]+)", read("docs/index.md"))
    }
    assert {name_of(page) for page in (ROOT / "docs").rglob("*.md")} - {
        name_of(page) for page in linked
    } == {"docs/index.md"}


# The examples run ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Options(notification_on_paid=False, notification_on_refund=False)) as running:
        yield running


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_PAYMENT_TOKEN", "the-secret-token")
    for variable in [name for name in os.environ if name.startswith("TILLGATE_")]:
        monkeypatch.delenv(variable)


def at(sandbox: Sandbox, text: str) -> str:
    return text.replace(PUBLISHED_ADDRESS, f"127.0.0.1:{sandbox.port}")


WITH_PYTHON = [page for page in PAGES if blocks(page.read_text("utf-8"), "python")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_every_python_block_compiles(page: Path) -> None:
    for block in blocks(page.read_text("utf-8"), "python"):
        compile(block, name_of(page), "exec")


TO_PASTE = {"docs/reference/gateway.md"}
TO_RUN = [page for page in WITH_PYTHON if name_of(page) not in SHOWN_IN_PARTS | TO_PASTE]


@pytest.fixture
def scaffold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder that the page about gateway plugins begins with; its modules are forgotten."""
    folder = write_plugin("mygateway", tmp_path, is_gateway=True).folder
    for path in (folder, folder / "src"):
        monkeypatch.syspath_prepend(path)
    yield
    for name in [name for name in sys.modules if re.match("tillgate_mygateway|toy_gateway", name)]:
        del sys.modules[name]


@pytest.mark.usefixtures("scaffold")
@pytest.mark.parametrize("page", TO_RUN, ids=name_of)
def test_python_blocks_run_in_order(page: Path, sandbox: Sandbox) -> None:
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks(page.read_text("utf-8"), "python"):
        exec(compile(at(sandbox, block), name_of(page), "exec"), names)


def test_sandbox_example_can_be_pasted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Prompt().paste(
        blocks(section(read("src/tillgate/sandbox/README.md"), "Starting it"), "python")[0]
    )
    assert "paid\n" in capsys.readouterr().out


class Prompt(code.InteractiveConsole):
    """Python's prompt, into which a reader pastes a block line by line; an error is raised."""

    def paste(self, block: str) -> None:
        for line in [*block.splitlines(), ""]:
            self.push(line)

    def showtraceback(self) -> None:
        self.showsyntaxerror()

    def showsyntaxerror(self, filename: str | None = None, **_: object) -> None:
        error = sys.exception()
        assert error
        raise error


def test_client_example_can_be_pasted(
    sandbox: Sandbox,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (example,) = blocks(section(read("docs/reference/gateway.md"), "Example"), "python")
    Prompt().paste(at(sandbox, example))
    said = capsys.readouterr().out
    assert f"Send the shopper to {sandbox.base_url}/cashier/" in said
    assert "pending 12.50 " in said


def test_plugin_how_to_examples_work(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One example logs every call, and one answers without a gateway."""
    logs, answers = (
        _module(f"example_{number}", blocks(section(read(page), heading), "python")[0])
        for number, (page, heading) in enumerate(
            (
                ("docs/how-to/write-a-gateway-plugin.md", "Log every call"),
                ("src/tillgate/testing/README.md", "Answer without a gateway"),
            ),
        )
    )
    manager = hooks.build_plugin_manager(logs, entry_points=False)
    manager.register(answers, name="canned")
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    account = Account(dialect=answers.CANNED, merchant_no="200043", token="the-secret-token")
    request = PaymentRequest(
        reference=tillgate.new_reference("100017"),
        currency="USD",
        amount="12.50",
        method="card",
        terminal="WAP",
        ipn_url="https://shop.example/ipn",
        callback_url="https://shop.example/back",
    )
    with caplog.at_level(logging.INFO, "shop.payments"):
        assert hooks.pay(account, request).transaction_no == "canned-1"
        assert (
            hooks.refund(
                account,
                RefundRequest(reference=request.reference, currency="USD", amount="2.50"),
            ).ret_msg
            == "refund success"
        )
    assert hooks.query(account, request.reference).amount == request.amount
    with pytest.raises(tillgate.OrderNotFound, match="000022"):
        hooks.query(account, tillgate.new_reference("100018"))
    assert "on 200043" in caplog.text
    assert f"refund {request.reference}: 2.50" in caplog.text
    assert "secret" not in caplog.text


def test_how_to_shows_output_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows the output of `tillgate plugins`."""
    page = read("docs/how-to/write-a-gateway-plugin.md")
    manager = hooks.build_plugin_manager(entry_points=False)
    manager.register(
        _module("paylog", blocks(section(page, "Log every call"), "python")[0]),
        name="paylog",
    )
    monkeypatch.setattr("tillgate.hooks.plugin_manager", lambda: manager)
    shown = next(
        block for block in blocks(page, "text") if "$ tillgate plugins\n" in block
    ).partition("$ tillgate plugins\n")[2]
    assert CliRunner().invoke(main, ["plugins"]).output == shown


def _module(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(source, name, "exec"), vars(module))
    return module


# The owners' questions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sought",
    [
        *("Apple Pay", "capacity", "chargeback", "Docker", "dispute", "GDPR", "PCI", "pending"),
        *("recurring payments", "refund", "subscription"),
    ],
)
def test_owners_word_heads_an_answer(sought: str) -> None:
    """A search ranks headings first, and the site ranks the pages for owners first. The site finds
    a word at the beginning of a token, and cuts headings as mkdocs.yml says.
    """
    (separator,) = re.findall(r"^ +separator: '(.+)'", read("mkdocs.yml"), re.MULTILINE)
    answers = [re.split(separator, heading.lower()) for heading in headings(read("docs/faq.md"))]
    words = sought.lower().split()
    assert [
        tokens
        for tokens in answers
        if all(any(token.startswith(word) for token in tokens) for word in words)
    ]


# The README ---------------------------------------------------------------------------------------


def test_readme_opens_with_two_commands() -> None:
    """The README also says which claims are not proven."""
    readme = read("README.md")
    assert len(readme.splitlines()) <= 120
    assert len(readme.partition("<img src=")[0].splitlines()) <= 35
    assert blocks(readme, "bash") == ["make demo\nmake test\n"]
    assert "No live gateway has been called yet" in section(readme, "Not proven")
