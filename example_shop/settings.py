"""The settings of Fold & Margin on one machine, to copy: SQLite, the sandbox's account, and
`manage.py tillgate worker` beside it.

The parts for Tillgate are marked; the rest is django-oscar's. `production.py` has the changes for a
shop on the internet.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.utils.translation import gettext_lazy as _
from oscar.defaults import *  # noqa: F403  # Oscar's own settings, as its documentation asks

from tillgate.wire.dialects import DIALECTS

HERE = Path(__file__).parent
VAR = Path(os.environ.get("SHOP_VAR", HERE / "var"))
"""Everything that the shop writes: database, pictures, mail. Nothing of it belongs to the
source.
"""
VAR.mkdir(parents=True, exist_ok=True)

# Tillgate: the money ------------------------------------------------------------------------------

OSCAR_DYNAMIC_CLASS_LOADER = (
    "tillgate_oscar.classes.load"  # lets the plugin into Oscar's checkout without a fork of it
)

TILLGATE: dict[str, Any] = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": os.environ.get("SHOP_GATEWAY_URL", "http://127.0.0.1:8181"),
            "MERCHANT_NO": "200043",
            # the sandbox's published test token; a live one never stands in a file
            "TOKEN": "5cbfb079f15b150122261c8537086d77a",
            "SANDBOX": True,
            "DIALECT": replace(
                DIALECTS[os.environ.get("SHOP_DIALECT") or "reference"],
                processing_words=frozenset({"processing"}),  # slow money, which the sandbox plays
            ),
            "STORE_NO": "300014",  # the sandbox's; the dialect v3 needs it
        },
    },
    "PUBLIC_URL": os.environ.get(
        "SHOP_PUBLIC_URL",
        "http://127.0.0.1:8000",
    ),  # where the gateway sends notifications and shoppers
    "PAYMENT_METHODS": [
        "creditcard",
        "paypal",
        "venmo",
        "alipay",
        "wechatpay",
        "unionpay",
    ],  # in the order in which they are shown
}

# `make demo GATEWAY=stripe`, with a test key of your own
if os.environ.get("SHOP_GATEWAY") == "stripe":
    TILLGATE["ACCOUNTS"]["default"] = {
        "DIALECT": "stripe",
        "TOKEN": os.environ["STRIPE_TEST_KEY"],
        "WEBHOOK_SECRETS": [
            secret for secret in [os.environ.get("STRIPE_WEBHOOK_SECRET")] if secret
        ],
        "BASE_URL": os.environ.get("SHOP_GATEWAY_URL", ""),
        "SANDBOX": True,
    }
    TILLGATE["PAYMENT_METHODS"] = None  # the methods that the account has switched on

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR / "shop.sqlite3",
        "OPTIONS": {
            # A transaction takes the lock for writing when it begins. Otherwise a notification that
            # meets the returning shopper fails with "database is locked", however long the timeout
            # is.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # WAL lets shoppers read during a payment. FULL waits for the disk: a power cut must not
            # forget a paid order.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
    },
}

MANAGERS = [("The shop", "shop@localhost")]  # are mailed when a payment needs review

# The steps that an order may take; Tillgate takes the first two.
OSCAR_INITIAL_ORDER_STATUS = "Pending payment"
OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending payment": ("Paid", "Cancelled"),
    "Paid": ("Shipped", "Cancelled"),
    "Shipped": (),
    "Cancelled": (),
}

# The shop -----------------------------------------------------------------------------------------

OSCAR_SHOP_NAME = "Fold & Margin"
OSCAR_SHOP_TAGLINE = _("paper, pens & letters")
OSCAR_HOMEPAGE = "/"
OSCAR_DEFAULT_CURRENCY = "USD"  # one that the account takes
OSCAR_ALLOW_ANON_CHECKOUT = True
OSCAR_HIDDEN_FEATURES = ["reviews", "wishlists"]
OSCAR_FROM_EMAIL = "Fold & Margin <shop@localhost>"
OSCAR_REQUIRED_ADDRESS_FIELDS = (
    "first_name",
    "last_name",
    "line1",
    "line4",
    "state",
    "postcode",
    "country",
)
OSCAR_IMAGE_FOLDER = "products/"

# Django -------------------------------------------------------------------------------------------

SECRET_KEY = os.environ.get(
    "SHOP_SECRET_KEY",
    "for a demonstration on this machine, and for nothing else",
)
# a demonstration: Django serves the static files itself, and the sandbox's play money is allowed
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "example_shop.urls"
WSGI_APPLICATION = "example_shop.wsgi.application"
SITE_ID = 1
USE_TZ = True
TIME_ZONE = "America/New_York"
LANGUAGE_CODE = "en-us"
# the top of each page offers them; Tillgate's pages speak all of them, and Oscar's some
LANGUAGES = [
    ("en-us", "English"),
    ("de", "Deutsch"),
    ("bn", "বাংলা"),
    ("es", "Español"),
    ("fil", "Filipino"),
    ("fr", "Français"),
    ("id", "Bahasa Indonesia"),
    ("ja", "日本語"),
    ("ko", "한국어"),
    ("ms", "Bahasa Melayu"),
    ("pl", "Polski"),
    ("pt-br", "Português (Brasil)"),
    ("th", "ไทย"),
    ("ur", "اردو"),
    ("vi", "Tiếng Việt"),
    ("zh-hans", "简体中文"),
    ("zh-hant", "繁體中文"),
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "example_shop.apps.ExampleShopConfig",  # before Oscar, so that the shop's templates win
    "tillgate_oscar",  # Tillgate in Oscar's checkout and dashboard, and its pages in Oscar's layout
    "tillgate.django",  # Tillgate's records and pages
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    "oscar.config.Shop",
    "oscar.apps.analytics.apps.AnalyticsConfig",
    "oscar.apps.checkout.apps.CheckoutConfig",
    "oscar.apps.address.apps.AddressConfig",
    "example_shop.shipping.apps.ShippingConfig",  # this shop's parcels
    "oscar.apps.catalogue.apps.CatalogueConfig",
    "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
    "oscar.apps.communication.apps.CommunicationConfig",
    "example_shop.partner.apps.PartnerConfig",  # this shop's prices
    "oscar.apps.basket.apps.BasketConfig",
    "oscar.apps.payment.apps.PaymentConfig",
    "oscar.apps.offer.apps.OfferConfig",
    "oscar.apps.order.apps.OrderConfig",
    "oscar.apps.customer.apps.CustomerConfig",
    "example_shop.search.apps.SearchConfig",  # this shop's shelves
    "oscar.apps.voucher.apps.VoucherConfig",
    "oscar.apps.wishlists.apps.WishlistsConfig",
    "oscar.apps.dashboard.apps.DashboardConfig",
    "oscar.apps.dashboard.reports.apps.ReportsDashboardConfig",
    "oscar.apps.dashboard.users.apps.UsersDashboardConfig",
    "oscar.apps.dashboard.orders.apps.OrdersDashboardConfig",
    "oscar.apps.dashboard.catalogue.apps.CatalogueDashboardConfig",
    "oscar.apps.dashboard.offers.apps.OffersDashboardConfig",
    "oscar.apps.dashboard.partners.apps.PartnersDashboardConfig",
    "oscar.apps.dashboard.pages.apps.PagesDashboardConfig",
    "oscar.apps.dashboard.ranges.apps.RangesDashboardConfig",
    "oscar.apps.dashboard.reviews.apps.ReviewsDashboardConfig",
    "oscar.apps.dashboard.vouchers.apps.VouchersDashboardConfig",
    "oscar.apps.dashboard.communications.apps.CommunicationsDashboardConfig",
    "oscar.apps.dashboard.shipping.apps.ShippingDashboardConfig",
    "widget_tweaks",
    "haystack",
    "treebeard",
    "sorl.thumbnail",
    "django_tables2",
]
# The two apps in place of Oscar's change no table, so that Oscar's migrations are theirs.
MIGRATION_MODULES = {
    "partner": "oscar.apps.partner.migrations",
    "shipping": "oscar.apps.shipping.migrations",
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "example_shop.policy.told",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
                "example_shop.tax.shown_separately",
                "example_shop.demonstration.told",
            ],
        },
    },
]

HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
# the simple engine looks into the database: there is no index to update
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.BaseSignalProcessor"

STATIC_URL = "static/"
STATIC_ROOT = VAR / "static"
MEDIA_URL = "media/"
MEDIA_ROOT = VAR / "media"

EMAIL_BACKEND = (
    "django.core.mail.backends.filebased.EmailBackend"  # mail to look at rather than to send
)
EMAIL_FILE_PATH = VAR / "mail"
