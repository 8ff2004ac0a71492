"""The search for circles of imports finds those of a small package, and none in this repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.circles import HIDDEN, circles, hidden, imports_of, main


def written(folder: Path, **modules: str) -> Path:
    (folder / "shop").mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / "shop" / f"{name}.py").write_text(text)
    return folder


def test_repository_has_no_circle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out


def test_circle_at_module_level_is_found(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        a="from shop import b",
        b="try:\n    import shop.c\nfinally:\n    pass",
        c="from shop.a import name",
    )
    (circle,) = circles(imports_of([folder]))
    assert set(circle) == {"shop.a", "shop.b", "shop.c"}
    assert main([folder]) == 1


def test_import_in_function_that_closes_circle_is_found(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        a="import shop.b",
        b="def f():\n    import shop.a\n    import shop.c",
        c="",
    )
    imports = imports_of([folder])
    assert circles([one for one in imports if not one.is_inside_function]) == []
    assert [(one.source, one.target) for one in hidden(imports)] == [("shop.b", "shop.a")]
    assert main([folder]) == 1


def test_imports_for_type_checkers_are_no_circle(tmp_path: Path) -> None:
    only_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shop.a"
    folder = written(tmp_path, a="import shop.b", b=only_types)
    assert main([folder]) == bool(HIDDEN)
