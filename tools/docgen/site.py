"""The sources of MkDocs beside docs/: pages that stand elsewhere in the repository, sources that
pages link to, and every public name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
PUBLIC_MODULES: Final = ("tillgate", "tillgate.hooks", "tillgate.shop", "tillgate.testing")
_DEFINED_IN: Final = {
    "tillgate.hooks": ("tillgate.hooks", "tillgate.hooks.hookspecs"),
    "tillgate.shop": tuple(
        f"tillgate.shop.{path.stem}"
        for path in sorted((ROOT / "src/tillgate/shop").glob("[!_]*.py"))
    ),
    "tillgate.testing": ("tillgate.testing", "tillgate.testing.driver"),
}
"""The modules with docstrings on a page of public names, where it is not the module alone."""
ELSEWHERE: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
    "SECURITY.md": "security.md",
    "SUPPORT.md": "support.md",
    "proving/reliability.md": "reliability.md",
    "src/tillgate/gateways/README.md": "reference/profile.md",
    "src/tillgate/lifecycle/README.md": "reference/judging.md",
    "src/tillgate/sandbox/README.md": "reference/sandbox.md",
    "src/tillgate/testing/README.md": "reference/testing.md",
    "src/tillgate/testing/driver.md": "reference/shop-driver.md",
    "src/tillgate/wire/README.md": "reference/interface.md",
    "src/tillgate/wire/dialect.md": "reference/dialect.md",
    "src/tillgate/wire/messages.md": "reference/messages.md",
    "tools/benchmarks/performance.md": "performance.md",
    "tools/docgen/conformance.md": "reference/conformance.md",
    "tools/docgen/versions.md": "reference/versions.md",
}
"""Where a page of the repository stands on the site."""
_UNSEARCHED: Final = "---\nsearch: {exclude: true}\n---\n"
_FOR_DEVELOPERS: Final = (
    *("reference/", "how-to/write-", "api/", "source/"),
    *("architecture", "contributing", "changelog", "reliability", "performance"),
)
"""How the pages begin that a search shows after those for owners and staff."""
_FOR_STAFF: Final = (
    "reference/checks.md",
    "reference/costs.md",
    "reference/lifecycle.md",
    "reference/personal-data.md",
    "reference/settings.md",
)
"""The pages of the reference that owners and staff read."""
_FIRST: Final = ("faq.md", "how-to/use-the-admin.md")
"""The pages that answer most questions of owners and staff."""
_LINK: Final = re.compile(
    r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(|<img src=\")([^()\s#\"]+)(#[^()\s\"]*)?(\)|\")",
)
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@cache
def pages() -> dict[str, str]:
    """Return where each page of the repository outside docs/ stands on the site."""
    places = {name: place for name, place in ELSEWHERE.items() if (ROOT / name).is_file()}
    for readme in sorted(ROOT.glob("plugins/*/README.md")):
        places[f"plugins/{readme.parent.name}/README.md"] = f"plugins/{readme.parent.name}.md"
    return places


def linked() -> set[str]:
    """Return the other files of the repository that the site's pages link to."""
    found: set[str] = set()
    waiting = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")] + list(
        pages(),
    )
    seen = set(waiting)
    while waiting:
        here = waiting.pop()
        for target in _targets((ROOT / here).read_text(encoding="utf-8"), here):
            if target.startswith("docs/") or target in seen or not (ROOT / target).is_file():
                continue
            seen.add(target)
            found.add(target)
            if target.endswith(".md"):
                waiting.append(target)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/."""
    from mkdocs.structure.files import File

    for source, place in pages().items():
        text = moved((ROOT / source).read_text(encoding="utf-8"), source, place)
        files.append(File.generated(config, place, content=text))
    for source in sorted(linked()):
        place = f"source/{source.removesuffix('.md')}.md"
        files.append(File.generated(config, place, content=_shown(source, place)))
    for module in PUBLIC_MODULES:
        shown = _DEFINED_IN.get(module, (module,))
        files.append(
            File.generated(
                config,
                f"api/{module}.md",
                content=_UNSEARCHED
                + "\n\n".join((f"# {module}", *(f"::: {one}" for one in shown))),
            ),
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to where their page stands on the site, and let a search show
    the pages for owners first.
    """
    if is_for_owners(page.file.src_uri):
        boost = 20 if page.file.src_uri in _FIRST else 5
        page.meta.setdefault("search", {"boost": boost})
    if page.file.generated_by is not None:
        return markdown
    return moved(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def is_for_owners(page: str) -> bool:
    """Tell whether a page of the site is for owners and staff of a shop."""
    return page in _FOR_STAFF or not page.startswith(_FOR_DEVELOPERS)


def moved(markdown: str, source: str, place: str) -> str:
    """Return the page `source` of the repository with its links as they must be at `place` of the
    site; code stays as it is.
    """

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match[1], match[2], match[3] or "", match[4]
        if ":" in target:
            return match[0]
        wanted = resolved(target, source)
        if wanted.startswith("docs/"):
            there = wanted.removeprefix("docs/")
        elif (ROOT / wanted).is_dir():
            return before.removeprefix("[").removesuffix("](")
        else:
            there = pages().get(wanted) or f"source/{wanted.removesuffix('.md')}.md"
        return f"{before}{posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor}{after}"

    return relinked(markdown, link)


def relinked(markdown: str, link: Callable[[re.Match[str]], str]) -> str:
    """Return a page with each link and picture as `link` writes it, from the groups before, target,
    anchor, after; code stays.
    """
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, markdown[end:])])


def resolved(target: str, source: str) -> str:
    """Return the path in the repository that a link of the page `source` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _shown(source: str, place: str) -> str:
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        return _UNSEARCHED + moved(text, source, place)
    return f"{_UNSEARCHED}# {source}\n\n~~~~{Path(source).suffix.removeprefix('.')}\n{text}\n~~~~\n"


def _targets(markdown: str, source: str) -> list[str]:
    return [
        resolved(match[2], source)
        for match in _LINK.finditer(_FENCE.sub("", markdown))
        if ":" not in match[2]
    ]
