"""The trials of the wheels: each in an environment of its own, in a folder outside the repository,
with nothing of it on any path.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from example_shop.browser import Browser, PageProblem
from tools.release.archives import ROOT, Distribution, distributions

__all__ = ["TRIALS", "Limits", "Place", "TrialProblem"]

_OURS: Final = re.compile(r"PYTHON|PYTEST|TILLGATE|DJANGO|VIRTUAL_ENV|CI$")
_MAIL_AND_ADDRESS: Final = {
    "first_name": "Ada",
    "last_name": "Moss",
    "line1": "1 Mill Lane",
    "line4": "Springfield",
    "postcode": "01101",
}


class TrialProblem(Exception):
    """What was installed does not do what it should; the text has the last words of the program."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a trial waits for each kind of thing: enough for two cores that others use too."""

    command_seconds: float = 900.0
    start_seconds: float = 120.0
    answer_seconds: float = 30.0
    page_seconds: float = 60.0
    stop_seconds: float = 30.0

    def times(self, patience: float) -> Limits:
        """Return the limits, each so many times as long."""
        return Limits(*(seconds * patience for seconds in astuple(self)))


@dataclass(frozen=True, slots=True)
class Place:
    """An empty folder outside the repository, and the archives to install there."""

    folder: Path
    archives: Path
    limits: Limits = Limits()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a shell there."""
        path = os.pathsep.join([str(self.folder / "venv" / "bin"), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
        return {
            **kept,
            "PATH": path,
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "PYTHONUNBUFFERED": "1",
        }

    def run(
        self,
        *command: str,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command of the environment, which must succeed, and return what it wrote."""
        environment = {**self.environment, **(variables or {})}
        found = self._found(command[0])
        try:
            done = subprocess.run(
                [found, *command[1:]],
                cwd=folder or self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=self.limits.command_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise TrialProblem(
                f"{' '.join(command)[:300]} took longer than {late.timeout:.0f} s: PATIENCE=3 "
                "waits three times as long",
            ) from late
        if done.returncode:
            raise TrialProblem(
                f"{' '.join(command)[:300]} ended with "
                f"{done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}",
            )
        return done.stdout or done.stderr

    def last_line(
        self,
        *command: str,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command, which must succeed, and return the last line that it wrote."""
        said = self.run(*command, folder=folder, variables=variables).strip()
        return said.splitlines()[-1] if said else "nothing"

    def install(self, *names: str) -> str:
        """Install distributions, ours from their wheels, and return what was installed of ours."""
        ours = {one.name: one for one in distributions()}
        wanted = [self._wheel(ours, name) for name in names]
        self.run(sys.executable, "-m", "venv", str(self.folder / "venv"))
        self.run(
            "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--find-links",
            str(self.archives),
            *wanted,
        )
        self.run("python", "-m", "pip", "check", "--disable-pip-version-check")
        where = self.run("python", "-c", "import tillgate; print(tillgate.__file__)").strip()
        if not where.startswith(str(self.folder)):
            raise TrialProblem(f"tillgate was imported from {where}, outside the clean environment")
        return "installed " + ", ".join(name for name in names if name.partition("[")[0] in ours)

    def _wheel(self, ours: Mapping[str, Distribution], name: str) -> str:
        """Return our wheel for a name with its extras, so that no namesake on an index is taken;
        other names as they are.
        """
        bare, bracket, extras = name.partition("[")
        return f"{ours[bare].wheel(self.archives)}{bracket}{extras}" if bare in ours else name

    def _found(self, program: str) -> str:
        inside = self.folder / "venv" / "bin" / program
        return str(inside) if inside.exists() else program

    @contextmanager
    def running(
        self,
        address: str,
        *command: str,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        """Let a program run until it is no longer needed; where an address is given, it answers
        there before the caller goes on.
        """
        log = self.folder / f"{'-'.join(command[:3]).replace('/', '_')}.log"
        with log.open("w") as output:
            child = subprocess.Popen(
                [self._found(command[0]), *command[1:]],
                cwd=self.folder,
                env={**self.environment, **(variables or {})},
                stdout=output,
                stderr=output,
            )
        try:
            until = time.monotonic() + self.limits.start_seconds
            while not self._answers(address):
                if child.poll() is not None or time.monotonic() > until:
                    raise TrialProblem(
                        f"{' '.join(command)} does not answer at {address}: "
                        f"{log.read_text('utf-8')[-3000:]}",
                    )
                time.sleep(0.1)
            yield
        except PageProblem as problem:
            raise TrialProblem(f"{problem}\n{log.read_text('utf-8')[-3000:]}") from problem
        finally:
            self._stop(child)

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        try:
            child.wait(self.limits.stop_seconds)
        except subprocess.TimeoutExpired as late:
            child.kill()
            child.wait()
            raise TrialProblem(f"{child.args!r} does not end in {late.timeout:.0f} s") from late

    def _answers(self, address: str) -> bool:
        try:
            return self._get(address).is_success
        except httpx.HTTPError:
            return False

    def _get(self, address: str) -> httpx.Response:
        return httpx.get(address, timeout=self.limits.answer_seconds, trust_env=False)

    def ask(self, address: str) -> Any:
        """Return what a program answers at an address, as JSON."""
        return self._get(address).raise_for_status().json()

    def unpacked(self, name: str) -> Path:
        """Unpack the source archive of a distribution."""
        (archive,) = [one.sdist(self.archives) for one in distributions() if one.name == name]
        with tarfile.open(archive) as source:
            source.extractall(self.folder / "source", filter="data")
        return self.folder / "source" / archive.name.removesuffix(".tar.gz")


_TESTS: Final = {
    "tillgate": ("tests/wire", "tests/test_cassettes.py"),
    "tillgate-django-payments": ("tests/test_provider.py",),
}
"""Some tests of two source archives."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The trials ---------------------------------------------------------------------------------------


def _core(place: Place) -> Iterator[str]:
    """The demo of the command line."""
    yield place.install("tillgate[sandbox]")
    last = place.last_line("tillgate", "demo", "--once")
    yield f"`tillgate demo --once` ended with: {last}"


def _author(place: Place) -> Iterator[str]:
    """A plugin's author: the two scaffolds with their kits, and the tests of our source archives."""
    yield place.install(
        "tillgate[testing,celery,django,async,otel]",
        "tillgate-django-payments[testing]",
        "hypothesis",
        "opentelemetry-sdk",
        "vcrpy",
    )
    yield _scaffold(place, "book-shop")[1]
    yield _scaffold(place, "pay-now", "--gateway")[1]
    for name, tests in _TESTS.items():
        yield f"{' '.join(tests)} from the source archive of {name}: {_pytest(place, name, *tests)}"


def _scaffold(place: Place, *arguments: str) -> tuple[Path, str]:
    """Run `tillgate new-plugin` and the commands that it prints, as its reader does; return the
    plugin's folder and what its kit said.
    """
    said = json.loads(place.run("tillgate", "new-plugin", *arguments, "--json"))
    kit = place.run("bash", "-euc", "\n".join(["export PIP_QUIET=1", *said["commands"]]))
    found = re.search(r"(\d+) of (\d+) scenarios held", kit)
    if not found or found[1] != found[2]:
        raise TrialProblem(f"`tillgate new-plugin {' '.join(arguments)}`: {kit[-3000:]}")
    words = f"`tillgate new-plugin {' '.join(arguments)}` wrote {len(said['files'])} files"
    return place.folder / said["folder"], f"{words}; {found[0]}"


def _pytest(
    place: Place,
    name: str,
    *arguments: str,
    python: str = "python",
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run tests from the source archive of a distribution; return the last line."""
    return place.last_line(
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments),
        folder=place.unpacked(name),
        variables=variables,
    )


def _oscar(place: Place) -> Iterator[str]:
    """A new Oscar shop with the lines of the README, in which a guest buys something."""
    gateways = ("tillgate-payu", "tillgate-stripe")
    yield place.install("tillgate[sandbox]", "tillgate-oscar", *gateways, "sorl-thumbnail")
    place.run("django-admin", "startproject", "shop", ".")
    shop, gateway = _free_port(), _free_port()
    settings, urls = place.folder / "shop/settings.py", place.folder / "shop/urls.py"
    added, addresses = _readme_lines(ROOT / "README.md")
    account, *_ = [
        block for block in _python(ROOT / "plugins/oscar/README.md") if '"SANDBOX": True' in block
    ]
    account = account.replace("127.0.0.1:8181", f"127.0.0.1:{gateway}").replace(
        "127.0.0.1:8000",
        f"127.0.0.1:{shop}",
    )
    settings.write_text(
        "\n".join(
            [
                settings.read_text("utf-8"),
                _OSCAR,
                added,
                account,
                'DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}',
                "OSCAR_ALLOW_ANON_CHECKOUT = True\n",
            ],
        ),
        "utf-8",
    )
    urls.write_text("\n".join([urls.read_text("utf-8"), addresses, _OSCAR_URLS]), "utf-8")
    place.run("python", "manage.py", "migrate", "--verbosity", "0")
    checked = place.last_line("python", "manage.py", "check", "--database", "default")
    yield f"`manage.py check` says: {checked}"
    plugins = json.loads(place.run("tillgate", "plugins", "--json"))["plugins"]
    if not {"payu", "stripe"} <= set(plugins):
        raise TrialProblem(f"`tillgate plugins` knows {sorted(plugins)}, and not payu and stripe")
    goods = int(place.last_line("python", "manage.py", "shell", "-v", "0", "-c", _GOODS))
    home = f"http://127.0.0.1:{shop}"
    with (
        place.running(
            f"http://127.0.0.1:{gateway}/_control/state",
            "tillgate",
            "sandbox",
            "--port",
            str(gateway),
        ),
        place.running(
            f"{home}/catalogue/",
            "python",
            "manage.py",
            "runserver",
            "--noreload",
            str(shop),
        ),
        Browser(home, timeout_seconds=place.limits.page_seconds) as guest,
    ):
        page = guest.open(f"/catalogue/linen-journal_{goods}/")
        guest.submit(page, page.form("quantity"), quantity="1")
        page = guest.open("/checkout/")
        page = guest.submit(
            page,
            page.form("options"),
            username="ada@shopper.example",
            options="anonymous",
        )
        page = guest.submit(page, page.form("line1"), **_MAIL_AND_ADDRESS, state="MA", country="US")
        page = guest.submit(
            page,
            page.form("tillgate-method", "alipay"),
            **{"tillgate-method": "alipay"},
        )
        page = guest.submit(page, page.form("action", "place_order"))
        page = guest.submit(page, page.forms[0], decision="pay")
        yield f"a guest bought, paid at the payment page, and came back to “{page.heading}”"
        place.run("python", "manage.py", "tillgate", "worker", "--once")
        order = place.last_line("python", "manage.py", "shell", "-v", "0", "-c", _ORDERS)
        if order != "[('Paid', '12.50')]":
            raise TrialProblem(f"the shop should have one order, paid, of 12.50; it has {order}")
        audited = place.last_line("python", "manage.py", "tillgate", "audit", "--since", "1d")
    yield f"the order is Paid; `manage.py tillgate audit` says: {audited}"


def _saleor(place: Place) -> Iterator[str]:
    """The service for Saleor starts with one command."""
    yield place.install("tillgate[sandbox]", "tillgate-saleor")
    gateway, port = _free_port(), _free_port()
    variables = {
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SECRET_KEY": "only-for-the-trial-of-a-release-of-enough-characters-and-more",
        "TILLGATE_BASE_URL": f"http://127.0.0.1:{gateway}",
        "TILLGATE_MERCHANT_NO": "200043",
        "TILLGATE_TOKEN": "5cbfb079f15b150122261c8537086d77a",
        "TILLGATE_SANDBOX": "true",
        "REVIEW_MAIL_TO": "owner@shop.example",
        "DATABASE_URL": f"sqlite:///{place.folder}/service.sqlite3",
    }
    address = f"http://127.0.0.1:{port}/api/manifest"
    with (
        place.running(
            f"http://127.0.0.1:{gateway}/_control/state",
            "tillgate",
            "sandbox",
            "--port",
            str(gateway),
        ),
        place.running(
            address,
            "tillgate-saleor",
            "serve",
            "--port",
            str(port),
            variables=variables,
        ),
    ):
        manifest = place.ask(address)
    yield f"`tillgate-saleor serve` answers: the App {manifest['name']!r} {manifest['version']}"


def _pretix(place: Place) -> Iterator[str]:
    """The wheel beside a real pretix, without a change of its environment: unpacked before it on
    the path.
    """
    python = ROOT / ".nox/pretix/bin/python"
    if not python.exists():
        raise TrialProblem(
            "there is no .nox/pretix: `make release` builds it, `nox --install-only -s pretix` too",
        )
    ours = [one for one in distributions() if one.name in ("tillgate", "tillgate-pretix")]
    wheels = [str(one.wheel(place.archives)) for one in ours]
    # uv builds environments without pip: that of another one looks into them
    place.run(sys.executable, "-m", "venv", str(place.folder / "venv"))
    asked = ("python", "-m", "pip", "--python", str(python), "install", "--dry-run", "--quiet")
    offline = ("--no-index", "--disable-pip-version-check")
    place.run(*asked, *offline, *wheels, variables={"PIP_CONSTRAINT": ""})
    unpacked = place.folder / "wheels"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    variables = {"PYTHONPATH": str(unpacked), "PIP_CONSTRAINT": "", "PYTHONDONTWRITEBYTECODE": "1"}
    where = place.run(
        str(python),
        "-c",
        "import tillgate, tillgate_pretix as it; print(tillgate.__file__, it.__file__)",
        variables=variables,
    )
    if where.count(str(unpacked)) != len(wheels):
        raise TrialProblem(f"the wheels were not what was imported: {where}")
    passed = _pytest(
        place,
        "tillgate-pretix",
        "tests/test_settings.py",
        python=str(python),
        variables=variables,
    )
    yield (
        "its requirements are met by pretix's environment; tests/test_settings.py from the "
        f"source archive: {passed}"
    )


def _gateway(plugin: str) -> Callable[[Place], Iterator[str]]:
    """Return the trial of a gateway's wheel: the kit on the fake of its source archive, and a shop
    of another author that sells through both.
    """

    def trial(place: Place) -> Iterator[str]:
        distribution = f"tillgate-{plugin}"
        yield place.install("tillgate[django,testing]", f"{distribution}[testing]")
        known = json.loads(place.run("tillgate", "plugins", "--json"))["plugins"]
        if plugin not in known:
            raise TrialProblem(f"`tillgate plugins` knows {sorted(known)}, and not {plugin}")
        kit = _pytest(place, distribution, "tests/test_gateway_conformance.py", "-k", "Fake")
        yield f"the kit of gateways on the fake from the source archive: {kit}"
        shop, _ = _scaffold(place, "book-shop")
        sold = place.last_line(
            *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            folder=shop,
            variables={
                "PYTHONPATH": str(place.unpacked(distribution)),
                "TILLGATE_TEST_GATEWAY": f"{plugin}_emulator.driver:FakeDriver",
                "TILLGATE_TEST_METHODS": "checkout card",
            },
        )
        yield f"the scaffold's shop sells through it: {sold}"

    return trial


TRIALS: Final[Mapping[str, Callable[[Place], Iterator[str]]]] = {
    "core": _core,
    "author": _author,
    "oscar": _oscar,
    "saleor": _saleor,
    "pretix": _pretix,
    "stripe": _gateway("stripe"),
    "payu": _gateway("payu"),
}
"""Each can be tried again alone: `make release TRIALS="oscar payu"`."""


# The Oscar shop -----------------------------------------------------------------------------------


def _python(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _readme_lines(page: Path) -> tuple[str, str]:
    """Return the lines that the README adds to the settings and to the addresses of an Oscar
    shop.
    """
    (block,) = [block for block in _python(page) if "OSCAR_DYNAMIC_CLASS_LOADER" in block]
    settings, _, urls = block.partition("# urls.py\n")
    return settings, urls


_OSCAR: Final = """
from oscar.defaults import *

INSTALLED_APPS += ["django.contrib.sites", "django.contrib.flatpages", "oscar.config.Shop"]
INSTALLED_APPS += [
    f"oscar.apps.{path}.apps.{name}Config"
    for path, name in {
        "analytics": "Analytics", "checkout": "Checkout", "address": "Address", "shipping": "Shipping", "catalogue": "Catalogue",
        "catalogue.reviews": "CatalogueReviews", "communication": "Communication", "partner": "Partner", "basket": "Basket",
        "payment": "Payment", "offer": "Offer", "order": "Order", "customer": "Customer", "search": "Search", "voucher": "Voucher",
        "wishlists": "Wishlists", "dashboard": "Dashboard", "dashboard.reports": "ReportsDashboard", "dashboard.users": "UsersDashboard",
        "dashboard.orders": "OrdersDashboard", "dashboard.catalogue": "CatalogueDashboard", "dashboard.offers": "OffersDashboard",
        "dashboard.partners": "PartnersDashboard", "dashboard.pages": "PagesDashboard", "dashboard.ranges": "RangesDashboard",
        "dashboard.reviews": "ReviewsDashboard", "dashboard.vouchers": "VouchersDashboard",
        "dashboard.communications": "CommunicationsDashboard", "dashboard.shipping": "ShippingDashboard",
    }.items()
]
INSTALLED_APPS += ["widget_tweaks", "haystack", "treebeard", "sorl.thumbnail", "django_tables2"]
SITE_ID = 1
ALLOWED_HOSTS = ["*"]
MIDDLEWARE += ["oscar.apps.basket.middleware.BasketMiddleware"]
TEMPLATES[0]["OPTIONS"]["context_processors"] += [
    "oscar.apps.search.context_processors.search_form",
    "oscar.apps.checkout.context_processors.checkout",
    "oscar.apps.communication.notifications.context_processors.notifications",
    "oscar.core.context_processors.metadata",
]
AUTHENTICATION_BACKENDS = ["oscar.apps.customer.auth_backends.EmailBackend", "django.contrib.auth.backends.ModelBackend"]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
MEDIA_URL, MEDIA_ROOT = "/media/", BASE_DIR / "media"
"""
"""What Oscar's own documentation asks of a project that `django-admin startproject` wrote."""
_OSCAR_URLS: Final = """
from django.apps import apps

urlpatterns += [path("i18n/", include("django.conf.urls.i18n")), path("", include(apps.get_app_config("oscar").urls[0]))]
"""
_GOODS: Final = """
from decimal import Decimal
from oscar.core.loading import get_model
get_model("address", "Country").objects.create(iso_3166_1_a2="US", printable_name="United States", is_shipping_country=True)
kind = get_model("catalogue", "ProductClass").objects.create(name="Paper", track_stock=False, requires_shipping=True)
product = get_model("catalogue", "Product").objects.create(title="Linen journal", product_class=kind)
seller = get_model("partner", "Partner").objects.create(name="Mill")
get_model("partner", "StockRecord").objects.create(product=product, partner=seller, partner_sku="J1", price=Decimal("12.50"))
print(product.pk)
"""
_ORDERS: Final = """
from oscar.core.loading import get_model
print([(order.status, str(order.total_incl_tax)) for order in get_model("order", "Order").objects.all()])
"""
