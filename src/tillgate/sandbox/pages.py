"""The pages that people see: the payment page for shoppers, the ledger and timelines for
developers. None needs JavaScript.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from . import contract, money
from .access import Access
from .control import Control
from .errors import NotPossible, UnknownTransaction
from .faults import FAULTS, MAGIC
from .ledger import Decision
from .masking import shown
from .transactions import Transaction

_HERE = Path(__file__).parent
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # No form-action: it would forbid the redirect to the shop that follows the payment page's form.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'",
}
_REFRESHES = (2, 5, 15)
_SHOWN_TRANSACTIONS = 200
_SHOWN_STRAYS = 50


def span(seconds: float) -> str:
    """Write a duration the way people say it."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return "less than a minute"
    hours, rest = divmod(minutes, 60)
    parts = [f"{hours} h" if hours else "", f"{rest} min" if rest else ""]
    return " ".join(filter(None, parts))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters |= {
    "moment": lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
    "clock_time": lambda at: datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3],
    "span": span,
    "money": money.shown,
    "body": shown,
    "vendor": lambda vendor: contract.PAYMENT_METHODS[vendor],
}
_ENVIRONMENT.globals |= {"magic": MAGIC, "faults": FAULTS, "refreshes": _REFRESHES}


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_ENVIRONMENT.get_template(name).render(**values), status, headers=_HEADERS)


def _problem(status: int, title: str, text: str) -> HTMLResponse:
    return _page("problem.html", status, title=title, text=text)


def _not_found(request: Request, error: Exception) -> Response:
    return _problem(
        404,
        "Nothing here",
        "This address does not exist, or you have no access to it.",
    )


EXCEPTION_HANDLERS: Mapping[Any, Callable[[Request, Exception], Response]] = {404: _not_found}
"""The pages for Starlette's own errors."""


def routes(control: Control, access: Access) -> list[BaseRoute]:
    """Every address that a browser opens."""

    def local(
        page: Callable[[Control, Request], Response],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            return (
                page(control, request)
                if access.may_look(request)
                else _not_found(request, LookupError())
            )

        return serve

    async def payment_page(request: Request) -> Response:
        return await _payment_page(control, request)

    async def elsewhere(request: Request) -> Response:
        return _problem(
            200,
            "Elsewhere",
            "The fault “redirect” sends API calls here. No gateway answers at this place.",
        )

    return [
        Route("/", local(_ledger), methods=["GET"]),
        Route("/transactions/{key}", local(_timeline), methods=["GET"]),
        Route("/cashier/{token}", payment_page, methods=["GET", "POST"]),
        Route("/elsewhere", elsewhere, methods=["GET"]),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]


async def _payment_page(control: Control, request: Request) -> Response:
    """Show the payment page, or do the action of its form ("Create payment", cashierUrl)."""
    try:
        with control.lock:
            transaction = control.service.at_payment_page(request.path_params["token"])
    except UnknownTransaction:
        return _problem(
            404,
            "No such payment",
            "This payment page address is not known. Ask the shop for a new one.",
        )
    if request.method != "POST":
        return _show_payment_page(control, transaction)
    async with request.form(max_fields=10, max_files=0) as form:
        decision: Decision | None = next(
            (choice for choice in get_args(Decision) if choice == form.get("decision")),
            None,
        )
    if decision is None:
        return _show_payment_page(control, transaction, 400, "Choose one of the three buttons.")
    try:
        with control.lock:
            redirect = control.settle_at_payment_page(transaction, decision)
    except NotPossible:
        if (decision, transaction.status) not in (("pay", "paid"), ("decline", "failed")):
            return _show_payment_page(
                control,
                transaction,
                409,
                "This payment was settled before; nothing has changed.",
            )
        with control.lock:  # a double click: the second one goes where the first one went
            redirect = control.service.way_back(transaction)
    if redirect is None:
        return _show_payment_page(
            control,
            transaction,
            200,
            "The sandbox was asked not to send you back to the shop.",
        )
    response = RedirectResponse("/", 303, headers=_HEADERS)
    response.headers["location"] = (
        redirect  # unchanged: Starlette would escape the braces of an unreplaced macro
    )
    return response


def _show_payment_page(
    control: Control,
    transaction: Transaction,
    status: int = 200,
    message: str = "",
) -> Response:
    with control.lock:
        service = control.service
        return _page(
            "payment_page.html",
            status,
            transaction=transaction,
            merchant_name=service.options.merchant_name,
            way_back=service.way_back(transaction),
            now=control.clock(),
            message=message,
            magic_amounts=service.options.magic_amounts,
            base_url=service.options.public_url,
        )


def _refresh(request: Request) -> int:
    wanted = request.query_params.get("refresh", "")
    return next((seconds for seconds in _REFRESHES if str(seconds) == wanted), 0)


def _ledger(control: Control, request: Request) -> Response:
    with control.lock:
        service = control.service
        transactions = service.transactions()
        return _page(
            "ledger.html",
            transactions=list(reversed(transactions[-_SHOWN_TRANSACTIONS:])),
            total=len(transactions),
            totals=service.totals(),
            service=service,
            strays=list(
                reversed(
                    service.journal.strays({one.reference for one in transactions})[
                        -_SHOWN_STRAYS:
                    ],
                ),
            ),
            now=control.clock(),
            base_url=str(request.base_url).rstrip("/"),
            refresh=_refresh(request),
        )


def _timeline(control: Control, request: Request) -> Response:
    with control.lock:
        service = control.service
        try:
            transaction = service.find(request.path_params["key"])
        except UnknownTransaction as error:
            return _problem(404, "No such transaction", str(error))
        return _page(
            "timeline.html",
            transaction=transaction,
            word=service.word(transaction),
            payment_url=service.payment_url(transaction),
            entries=service.journal.of(transaction),
            now=control.clock(),
            refresh=_refresh(request),
        )
