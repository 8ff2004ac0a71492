"""The archives of every distribution: built from the commit, and compared with the files that git
knows.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from tools.docgen.site import relinked, resolved

__all__ = ["ROOT", "Distribution", "addressed", "build", "distributions", "faults", "rendered"]

ROOT: Final = Path(__file__).parents[2]
_RELATIVE: Final = re.compile(r'(?:href|src)="(?!https?:|mailto:|#)([^"]*)"')
_CLONE: Final = re.compile(r"/path/to/\S*|\.\./\S+")
_NEXT_MINOR: Final = "0.2.0"
_NOT_IN_WHEELS: Final = ".po"
"""Translators edit them; Django reads the .mo."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One of the distributions of this repository."""

    folder: Path
    project: dict[str, Any]

    @property
    def name(self) -> str:
        """The name on the index."""
        return str(self.project["name"])

    @property
    def package(self) -> str:
        """The package's folder."""
        return self.name.replace("-", "_")

    @property
    def version(self) -> str:
        """The version that the package says."""
        found = re.search(
            r'^__version__ = "(.+)"$',
            (self.folder / "src" / self.package / "__init__.py").read_text("utf-8"),
            re.MULTILINE,
        )
        return found[1] if found else ""

    def wheel(self, into: Path) -> Path:
        """Return where the wheel is after building."""
        return into / f"{self.package}-{self.version}-py3-none-any.whl"

    def sdist(self, into: Path) -> Path:
        """Return where the source archive is after building."""
        return into / f"{self.package}-{self.version}.tar.gz"


def distributions() -> list[Distribution]:
    """Return the distributions, Tillgate itself first."""
    folders = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
    return [
        Distribution(
            folder,
            tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"],
        )
        for folder in folders
    ]


def build(distribution: Distribution, into: Path, home: str = "") -> None:
    """Build the source archive, and the wheel from it: what the archive lacks, the wheel lacks too.

    With the public address of the repository, they are built from a copy in which the package's
    page and metadata have addresses.
    """
    with tempfile.TemporaryDirectory(prefix="tillgate-build-") as copy:
        source = _with_addresses(distribution, Path(copy), home) if home else distribution.folder
        command = [sys.executable, "-m", "build", "--outdir", str(into), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{distribution.name} cannot be built:\n{(done.stdout + done.stderr)[-2000:]}",
        )


def _with_addresses(distribution: Distribution, copy: Path, home: str) -> Path:
    """Copy the files that git knows of a distribution; its README gets whole addresses, and its
    metadata the project's links.
    """
    for name in _git("ls-files", "-z", folder=distribution.folder):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(distribution.folder / name, copy / name)
    readme = copy / "README.md"
    readme.write_text(addressed(readme.read_text("utf-8"), distribution, home), "utf-8")
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write(
            "\n[project.urls]\n"
            + "".join(f'{name} = "{url}"\n' for name, url in _urls(distribution, home).items()),
        )
    return copy


def addressed(markdown: str, distribution: Distribution, home: str) -> str:
    """Return a distribution's README with its relative links and pictures as addresses of its
    version, below that of the repository.
    """
    source = (distribution.folder / "README.md").relative_to(ROOT).as_posix()

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match[1], match[2], match[3] or "", match[4]
        if ":" in target:
            return match[0]
        kind = "raw" if before.startswith(("<img", "!")) else "blob"
        return f"{before}{home}/{kind}/v{distribution.version}/{resolved(target, source)}{anchor}{after}"

    return relinked(markdown, link)


def _urls(distribution: Distribution, home: str) -> dict[str, str]:
    """Return the links that an index shows beside a package's page."""
    folder = distribution.folder.relative_to(ROOT).as_posix().removeprefix(".")
    return {
        "Homepage": home,
        "Documentation": f"{home}/blob/v{distribution.version}/docs/index.md",
        "Source": f"{home}/tree/v{distribution.version}/{folder}".rstrip("/"),
        "Changelog": f"{home}/blob/v{distribution.version}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def faults(distribution: Distribution, into: Path, home: str = "") -> Iterator[str]:
    """Yield each fault of the two archives of a distribution."""
    tracked = set(_git("ls-files", "-z", folder=distribution.folder))
    wheel, sdist = distribution.wheel(into), distribution.sdist(into)
    with zipfile.ZipFile(wheel) as archive:
        info = f"{distribution.package}-{distribution.version}.dist-info"
        names = {name for name in archive.namelist() if not name.endswith("/")}
        package = {
            name.removeprefix("src/")
            for name in tracked
            if name.startswith(f"src/{distribution.package}/") and not name.endswith(_NOT_IN_WHEELS)
        }
        extra = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
        extra |= (
            {f"{info}/entry_points.txt"}
            if {"scripts", "entry-points"} & set(distribution.project)
            else set()
        )
        yield from _differences("the wheel", names, package | extra)
        yield from (
            f"the wheel's {name} is not the file that git knows"
            for name in sorted(package & names)
            if archive.read(name) != (distribution.folder / "src" / name).read_bytes()
        )
        if f"{distribution.package}/py.typed" not in names:
            yield "the wheel has no py.typed: type checkers would ignore its types"
        metadata = (
            email.message_from_bytes(archive.read(f"{info}/METADATA"))
            if f"{info}/METADATA" in names
            else None
        )
    if metadata is not None:
        yield from _metadata_faults(distribution, metadata)
        yield from _address_faults(distribution, metadata, home) if home else ()
    with tarfile.open(sdist) as source:
        inside = {
            member.name.partition("/")[2] for member in source.getmembers() if member.isfile()
        }
    # the second is the repository's, and hatchling builds from the archive by it
    elsewhere = {
        "PKG-INFO",
        ".gitignore",
    }
    yield from (
        f"the source archive has {name}, which git does not know"
        for name in sorted(inside - tracked - elsewhere)
    )
    for folder in ("src", "tests"):
        wanted = {name for name in tracked if name.startswith(f"{folder}/")}
        yield from (f"the source archive lacks {name}" for name in sorted(wanted - inside))
    yield from (
        f"the source archive lacks {name}"
        for name in ("LICENSE", "README.md", "pyproject.toml")
        if name not in inside
    )


def _metadata_faults(distribution: Distribution, metadata: Any) -> Iterator[str]:
    for field, wanted in [
        ("Version", distribution.version),
        ("License-Expression", "BSD-3-Clause"),
        ("Requires-Python", ">=3.11"),
    ]:
        if metadata[field] != wanted:
            yield f"{field} is {metadata[field]!r}, not {wanted!r}"
    for field in ("Summary", "Keywords", "Classifier"):
        if not metadata[field]:
            yield f"{field} is empty"
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    ours = [one for one in asked if one.name == "tillgate" and "extra" not in str(one.marker)]
    if distribution.folder != ROOT and not (
        ours
        and all(
            one.specifier.contains(distribution.version) and not one.specifier.contains(_NEXT_MINOR)
            for one in ours
        )
    ):
        yield (
            f"it asks for {[str(one) for one in ours]}, not for a Tillgate of its own minor version"
        )
    yield from (
        f"it asks for {one}: an index refuses requirements with an address"
        for one in asked
        if one.url
    )
    yield from _description_faults(metadata.get_payload())


def _address_faults(distribution: Distribution, metadata: Any, home: str) -> Iterator[str]:
    given = dict(str(one).split(", ", 1) for one in metadata.get_all("Project-URL") or [])
    if given != _urls(distribution, home):
        yield f"its links are {given}"
    if f'src="{home}/raw/' not in metadata.get_payload():
        yield "its page has no picture"


def _description_faults(description: str) -> Iterator[str]:
    """Yield what would be broken on a package index, which shows the description alone."""
    shown = rendered(description)
    if "<h1" not in shown:
        yield "its description is not rendered"
    yield from (
        f"its description links to {target!r}, which an index does not have"
        for target in _RELATIVE.findall(shown)
    )
    yield from (
        f"its description names {path}, which only a clone has"
        for path in _CLONE.findall(description)
    )


def rendered(description: str) -> str:
    """Return a description as a package index renders it."""
    renderer = [
        sys.executable,
        "-c",
        "import sys, readme_renderer.markdown as it; print(it.render(sys.stdin.read()) or '')",
    ]
    return subprocess.run(
        renderer,
        input=description,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _differences(what: str, found: Iterable[str], wanted: Iterable[str]) -> Iterator[str]:
    yield from (f"{what} lacks {name}" for name in sorted(set(wanted) - set(found)))
    yield from (
        f"{what} has {name}, which does not belong there"
        for name in sorted(set(found) - set(wanted))
    )


def _git(*arguments: str, folder: Path) -> list[str]:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.split("\0") if name]
