"""The control API: `Control` over HTTP, as JSON. A client without access gets 404 for every address
below `/_control/`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .access import Access
from .control import Control
from .errors import NotPossible, SandboxError, UnknownTransaction, WrongOption
from .notifications import NotificationKind

Body = dict[str, object]
Action = Callable[[Control, Request, Body], object]

_ACTIONS = ("pay", "decline", "leave", "expire", "reverse", "refund", "finish_refund")
"""The names of the methods of `Control` that are actions on a transaction."""


def routes(control: Control, access: Access) -> list[Route]:
    """Every address of the control API."""
    table: tuple[tuple[str, str, Action], ...] = (
        ("GET", "/state", lambda control, request, body: control.state()),
        ("POST", "/clock", _advance),
        ("PATCH", "/options", _set_options),
        ("POST", "/faults", _fault),
        ("DELETE", "/faults", lambda control, request, body: control.clear_faults()),
        ("GET", "/transactions/{key}", _show),
        ("POST", "/transactions/{key}/{action}", _act),
        ("POST", "/transactions/{key}/notifications", _notify),
        ("POST", "/reset", lambda control, request, body: control.reset()),
    )
    ordered = sorted(table, key=lambda row: "{action}" in row[1])
    return [
        Route(f"/_control{path}", _guarded(action, control, access), methods=[method])
        for method, path, action in ordered
    ]


def _guarded(
    action: Action,
    control: Control,
    access: Access,
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        writes = request.method not in ("GET", "HEAD")
        if not (access.may_act(request) if writes else access.may_look(request)):
            return JSONResponse({"error": "Not Found"}, 404)
        try:
            body = await _read(request) if writes else {}
            return JSONResponse(
                {"ok": True} if (answer := action(control, request, body)) is None else answer,
            )
        except (SandboxError, ValueError) as error:
            return JSONResponse(
                {"error": str(error)},
                {UnknownTransaction: 404, NotPossible: 409}.get(type(error), 400),
            )

    return serve


async def _read(request: Request) -> Body:
    raw = await request.body()
    if not raw and request.method == "DELETE":
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ValueError("send JSON with Content-Type: application/json")
    try:
        found = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongOption("the body", found, "a JSON object")
    return found


def _only(body: Body, *names: str) -> None:
    """Refuse an unknown name: a misspelt name must not be ignored."""
    unknown = sorted(set(body) - set(names))
    if unknown:
        raise ValueError(
            f"unknown: {', '.join(unknown)}; this takes {', '.join(names) or 'nothing'}",
        )


def _text(body: Body, name: str, default: str | None = None) -> str | None:
    value = body.get(name, default)
    if value is not None and not isinstance(value, str):
        raise WrongOption(name, value, "text")
    return value


def _advance(control: Control, request: Request, body: Body) -> object:
    _only(body, "advance_seconds")
    seconds = body.get("advance_seconds")
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise WrongOption("advance_seconds", seconds, "a number of seconds")
    control.advance(seconds)
    return {"now": control.clock()}


def _set_options(control: Control, request: Request, body: Body) -> object:
    control.set_options(body)
    return control.state()["options"]


def _fault(control: Control, request: Request, body: Body) -> object:
    _only(body, "fault", "occasion", "reference", "times")
    times = body.get("times", 1)
    if type(times) is not int:
        raise WrongOption("times", times, "a whole number")
    name = _text(body, "fault", "") or ""
    control.fault(
        name,
        occasion=_text(body, "occasion"),
        reference=_text(body, "reference"),
        times=times,
    )
    return control.state()["planned_faults"]


def _show(control: Control, request: Request, body: Body) -> object:
    with control.lock:
        return control.describe(control.service.find(request.path_params["key"]))


def _act(control: Control, request: Request, body: Body) -> object:
    key, action = request.path_params["key"], request.path_params["action"]
    if action not in _ACTIONS:
        raise ValueError(f"there is no action {action!r}: {', '.join(_ACTIONS)}, notifications")
    named = {"refund": ("amount", ""), "finish_refund": ("outcome", "succeeded")}.get(action)
    _only(body, *([named[0]] if named else []))
    given = [_text(body, *named)] if named else []
    redirect = getattr(control, action)(key, *given)
    with control.lock:
        return {"redirect": redirect, "transaction": control.describe(control.service.find(key))}


def _notify(control: Control, request: Request, body: Body) -> None:
    _only(body, "kind", "status")
    kinds: tuple[NotificationKind, ...] = get_args(NotificationKind)
    wanted = _text(body, "kind", "payment")
    kind = next((one for one in kinds if one == wanted), None)
    if kind is None:
        raise WrongOption("kind", wanted, ", ".join(kinds))
    control.notify(request.path_params["key"], kind, status=_text(body, "status", "") or "")
