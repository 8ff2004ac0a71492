"""The pages of staff in a shop with years of payments, against the same pages of a young shop, the
bare statements, and Django's own list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

from tools.benchmarks import databases, processes
from tools.benchmarks.measure import Effort, Ratio, Series, take_turns
from tools.benchmarks.notifications import environment
from tools.benchmarks.processes import Actor
from tools.benchmarks.report import Figure, Section

__all__ = ["run"]

_PAGES: Final = {
    "list of payments": "payments",
    "last page of the list": "payments, last page",
    "list of one method": "payments, method",
    "search for an order's number": "search, order number",
    "search in vain": "search, nonsense",
    "page of a payment": "payment",
    "open reviews": "reviews",
}
"""The pages that an index should answer: what they are called here, and by the desk."""
_YEAR: Final = "figures of a year"
_EXPORT: Final = "export of a year"
_PLAIN: Final = "Django's own list"
_PLAIN_SEARCH: Final = "Django's own search"
_SUM: Final = "bare sum of a year"
_READ: Final = "bare read of a year"


def _desk(stack: ExitStack, kind: str, name: str, rows: int) -> Actor:
    chosen = environment("desk", kind, "https://gateway.example", name)
    actor = stack.enter_context(processes.acting("tools.benchmarks.desk.action", chosen))
    actor.do("create")
    stack.callback(actor.do, "destroy")
    actor.do("fill", count=rows)
    return actor


def _measured(kind: str, most: int, few: int, effort: Effort) -> tuple[Series, Ratio]:
    """Measure on one database; return the seconds, and the memory for the export of a year as a
    multiple of that of the young shop.
    """
    with ExitStack() as stack:
        young = _desk(stack, kind, "young", few)
        old = _desk(stack, kind, "old", most)
        # the rows were in memory: both begin anew
        memory = Ratio(*[_peak(kind, "old") / _peak(kind, "young")] * 3)
        contenders: dict[str, Callable[[], float]] = {}
        for size, actor in (("young", young), ("old", old)):
            pages = actor.do("pages")
            contenders |= {
                f"{called}, {size}": partial(actor.do, "open_page", path=pages[name])
                for called, name in _PAGES.items()
            }
        contenders |= {
            _YEAR: partial(old.do, "open_page", path=pages["figures of a year"], times=1),
            _SUM: partial(old.do, "add_year"),
            _EXPORT: partial(old.do, "export", path=pages["export of a year"]),
            _READ: partial(old.do, "read_year"),
            _PLAIN: partial(old.do, "open_page", path=pages["Django's list"], times=1),
            _PLAIN_SEARCH: partial(old.do, "open_page", path=pages["Django's search"], times=1),
        }
        series = take_turns(f"staff {kind}", contenders, effort.pick(5, 1), effort)
    return series, memory


def _peak(kind: str, name: str) -> int:
    """Return the most memory of a fresh process that exports a year."""
    chosen = environment("desk", kind, "https://gateway.example", name)
    with processes.acting("tools.benchmarks.desk.action", chosen) as actor:
        actor.do("export", path=actor.do("pages")["export of a year"])
        return int(actor.do("peak"))


def _figures(kind: str, most: int, few: int, series: Series, memory: Ratio) -> Iterator[Figure]:
    where = f"among {most:,} payments, {databases.NAMES[kind]}"
    for called in _PAGES:
        cost = series.cost(f"{called}, old", f"{called}, young")
        yield Figure.cost(f"{called} {where}: time among {few:,}", cost, at_most=2)
    slowest = max(series.median(f"{called}, old") for called in _PAGES)
    yield _within(f"slowest page of staff {where}", slowest, 0.2)
    speed = series.speed("list of payments, old", _PLAIN)
    yield Figure.speed(f"list of payments {where}: speed of Django's own list", speed, at_least=2)
    speed = series.speed("search for an order's number, old", _PLAIN_SEARCH)
    yield Figure.speed(f"search {where}: speed of Django's own search", speed, at_least=4)
    cost = series.cost(_YEAR, _SUM)
    yield Figure.cost(f"figures of a year {where}: time of a bare sum", cost, at_most=2)
    yield _within(f"figures of a year {where}", series.median(_YEAR), 0.5)
    cost = series.cost(_EXPORT, _READ)
    yield Figure.cost(f"export of a year {where}: time of a bare read of its rows", cost, at_most=4)
    yield Figure.cost(
        f"export of a year {where}: peak memory among {few:,}",
        memory,
        at_most=1.2,
    )


def _within(what: str, seconds: float, most: float) -> Figure:
    """Say what a clerk waits, with a target in seconds."""
    verdict = "met" if seconds <= most else "**not met**"
    return Figure(what, f"**{seconds:.2f} s**", f"at most {most:g} s", verdict)


def run(effort: Effort) -> Section:
    """Measure."""
    most, few = effort.pick(300_000, 3_000), effort.pick(3_000, 1_000)
    figures, bars = list[Figure](), dict[str, float]()
    kinds = [databases.QUICKEST] if effort.quick else ["postgresql", "mariadb"]
    for kind in kinds:
        if detail := databases.why_not(kind):
            what = f"pages of staff among {most:,} payments, {databases.NAMES[kind]}"
            figures.append(Figure.missing(what, detail, "at most 2x"))
            continue
        series, memory = _measured(kind, most, few, effort)
        figures += _figures(kind, most, few, series, memory)
        bars |= {f"{kind}: {name}": series.median(name) * 1000 for name in series.seconds}
    return Section(
        name="staff",
        title="Staff's pages after years",
        about="A shop has sold for 14 months: payments of five methods and two accounts, with "
        "orders, timelines, notifications,\n"
        "events, refunds, reviews and disputes. Pages are asked for without a network. The bare "
        "sum groups the year's payments\n"
        "by currency and status, and the bare read makes Django's objects of them. Django's own "
        "list is a `ModelAdmin` of the\n"
        "same rows with the same columns, filters and searched columns.",
        repetitions=f"{effort.pick(5, 1)} rounds; in each the median of 3 calls of a page, and "
        "one of the others.",
        figures=figures,
        bars=bars,
        unit="milliseconds (shorter is better)",
    )
