"""Pages for monitors: the health as JSON, and the figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import wraps
from ipaddress import ip_address
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe

from tillgate.django.conf import get_settings
from tillgate.django.operating.monitoring import Vitals, vitals

_View = Callable[[HttpRequest], HttpResponse]


def _guarded(view: _View) -> _View:
    """Hide a page from everyone without the token or a listed address, as if it were not there."""

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if not (_has_token(request) or _has_address(request)):
            raise Http404
        answer = view(request)
        answer["Cache-Control"] = "no-store"
        return answer

    return require_safe(guarded)


def _has_token(request: HttpRequest) -> bool:
    token = get_settings().monitor_token
    given = request.headers.get("Authorization", "")
    return token is not None and constant_time_compare(
        given,
        f"Bearer {token.get_secret_value()}",
    )


def _has_address(request: HttpRequest) -> bool:
    networks = get_settings().monitor_networks
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:  # of a socket in the file system
        return False
    return any(address in network for network in networks)


@_guarded
def health(request: HttpRequest) -> HttpResponse:
    """Answer 200 where all is well, else 503, with the reasons and figures as JSON."""
    found = vitals()
    return JsonResponse(
        {"healthy": not found.problems, **asdict(found)},
        status=503 if found.problems else 200,
    )


@_guarded
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the same figures in Prometheus' text format; needs `tillgate[prometheus]`."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Gauges(vitals()))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Gauges:
    def __init__(self, found: Vitals) -> None:
        self._found = found

    def collect(self) -> Iterator[Any]:
        """Yield each figure as a gauge; one that has no value is left out."""
        from prometheus_client.core import GaugeMetricFamily

        found = self._found
        single = {
            "healthy": ("1 where all is well", float(not found.problems)),
            "worker_age_seconds": ("Since the worker ran last", found.worker_seconds),
            "undelivered_event_age_seconds": (
                "Age of the oldest event that the shop has not heard",
                found.undelivered_seconds,
            ),
            "open_reviews": ("Reviews that wait for staff", float(found.open_reviews)),
            "oldest_review_age_seconds": (
                "Age of the oldest open review",
                found.oldest_review_seconds,
            ),
        }
        for name, (about, value) in single.items():
            if value is not None:
                yield GaugeMetricFamily(f"tillgate_{name}", about, value=value)
        waiting = GaugeMetricFamily("tillgate_due_rows", "Due rows of a chore", labels=["chore"])
        oldest = GaugeMetricFamily(
            "tillgate_oldest_due_seconds",
            "For how long the oldest row of a chore has been due",
            labels=["chore"],
        )
        for one in found.due:
            waiting.add_metric([one.chore], one.waiting)
            oldest.add_metric([one.chore], one.oldest_seconds)
        yield from (waiting, oldest)
        resting = GaugeMetricFamily(
            "tillgate_account_silent",
            "1 for an account without answers from its gateway",
            labels=["account"],
        )
        for account in found.resting:
            resting.add_metric([account], 1)
        yield resting
