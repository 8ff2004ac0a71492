"""The emulator judges the package's wire format, so it must not share a line with it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tillgate.sandbox

HERE = Path(tillgate.sandbox.__file__).parent
MODULES = sorted(HERE.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_sandbox_modules_import_no_client_code(
    path: Path,
) -> None:
    """No module imports the rest of the package or an HTTP client of others."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1
            names = [] if node.level else [node.module or ""]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not any(
            name.split(".")[0] in ("tillgate", "httpx", "requests", "aiohttp", "pydantic")
            for name in names
        )


def test_the_service_needs_no_web_server_installed() -> None:
    code = (
        "import sys; import tillgate.sandbox; sys.exit(any(m in sys.modules for m in "
        "('starlette', 'uvicorn', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_can_be_loaded() -> None:
    for name in tillgate.sandbox.__all__:
        assert getattr(tillgate.sandbox, name)
    with pytest.raises(AttributeError):
        _ = tillgate.sandbox.nothing
