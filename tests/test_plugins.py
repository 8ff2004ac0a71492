"""Shop plugins live on `tillgate`, `tillgate.hooks` and `tillgate.shop`: the plugins of this
repository show that it is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

ROOT = Path(__file__).parents[1]
PLUGINS = {
    "the smallest shop": [
        ROOT / "tests/smallest_shop" / f"{name}.py"
        for name in ("plugin", "models", "apps", "driver")
    ],
    "the scaffold": sorted((ROOT / "src/tillgate/scaffold/template").rglob("*.py.tmpl")),
    **{
        path.name: sorted(path.glob("src/**/*.py"))
        for path in sorted((ROOT / "plugins").iterdir())
        if path.is_dir()
    },
}
PUBLIC = {
    "tillgate",
    "tillgate.gateways",
    "tillgate.gateways.http",
    "tillgate.hooks",
    "tillgate.shop",
    "tillgate.shop.http",
}
PUBLIC_IN_TESTS = {
    "tillgate.testing",
    "tillgate.testing.databases",
    "tillgate.testing.conformance",
    "tillgate.testing.driver",
}


def parsed(path: Path) -> ast.Module:
    text = path.read_text("utf-8")
    if path.suffix == ".tmpl":
        text = Template(text).substitute(
            name="some-shop",
            package="some_shop",
            class_name="SomeShop",
            distribution="d",
            version="1",
        )
    return ast.parse(text)


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (
                f"{node.module}.{one.name}" if node.module == "tillgate" else str(node.module)
                for one in node.names
            )


def below(tree: ast.Module, *, is_test: bool) -> list[str]:
    """Return the modules of Tillgate that a file imports though they are not public."""
    import tillgate

    names = (
        {f"tillgate.{name}" for name in tillgate.__all__}
        | PUBLIC
        | (PUBLIC_IN_TESTS if is_test else set())
    )
    return [
        name for name in imported(tree) if name.split(".")[0] == "tillgate" and name not in names
    ]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_shop_plugins_import_only_public_modules(plugin: str) -> None:
    assert PLUGINS[plugin]
    found = {
        path.name: below(parsed(path), is_test="driver" in path.name or "test" in path.parent.name)
        for path in PLUGINS[plugin]
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_shop_plugin_queries_tillgates_models(plugin: str) -> None:
    for path in PLUGINS[plugin]:
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get_model"
                and node.args
            ):
                first = node.args[0]
                assert not (
                    isinstance(first, ast.Constant) and str(first.value).startswith("tillgate")
                ), f"{path}:{node.lineno}"


def test_the_search_finds_an_import_below() -> None:
    tree = ast.parse(
        "from tillgate import Goods, django\nimport tillgate.django.models\nfrom tillgate.wire "
        "import money\nfrom tillgate import shop",
    )
    assert below(tree, is_test=False) == [
        "tillgate.django",
        "tillgate.django.models",
        "tillgate.wire",
    ]
