"""A plain Oscar shop, with Tillgate enabled by the lines that the README gives. Which shop it is,
the environment says.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from oscar.defaults import *  # noqa: F403  # Oscar's own settings, as its documentation asks

from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.databases import chosen_database, name_of_database

FORKED = os.environ.get("TILLGATE_TEST_FORK") == "1"
"""Whether the shop forked `checkout`: a shop with cash on delivery, a changed preview, and
django-oscar-api.
"""

DATABASE = name_of_database()
DATABASES = {"default": chosen_database("tillgate_oscar_tests")}
DATABASES["default"]["ATOMIC_REQUESTS"] = os.environ.get("TILLGATE_TEST_ATOMIC") == "1"

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEBUG = False
SITE_ID = 1
LANGUAGE_CODE = "en-us"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
_MEDIA = f"{Path(DATABASES['default']['TEST']['NAME']).stem}_media_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
MEDIA_ROOT = str(Path(tempfile.gettempdir()) / _MEDIA)  # of this checkout alone, as its database is
MEDIA_URL = "/media/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"

INSTALLED_APPS = [
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
    "tests.forked.checkout.apps.CheckoutConfig"
    if FORKED
    else "oscar.apps.checkout.apps.CheckoutConfig",
    "oscar.apps.address.apps.AddressConfig",
    "oscar.apps.shipping.apps.ShippingConfig",
    "oscar.apps.catalogue.apps.CatalogueConfig",
    "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
    "oscar.apps.communication.apps.CommunicationConfig",
    "oscar.apps.partner.apps.PartnerConfig",
    "oscar.apps.basket.apps.BasketConfig",
    "oscar.apps.payment.apps.PaymentConfig",
    "oscar.apps.offer.apps.OfferConfig",
    "oscar.apps.order.apps.OrderConfig",
    "oscar.apps.customer.apps.CustomerConfig",
    "oscar.apps.search.apps.SearchConfig",
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
    *(["rest_framework", "oscarapi"] if FORKED else []),
    "tillgate_oscar",
    "tillgate.django",
    "tests.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ],
        },
    },
]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
HAYSTACK_SIGNAL_PROCESSOR = (
    "haystack.signals.BaseSignalProcessor"  # the simple backend has no index to keep
)

OSCAR_DEFAULT_CURRENCY = "USD"
OSCAR_ALLOW_ANON_CHECKOUT = True
OSCAR_FROM_EMAIL = "shop@shop.example"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending payment": ("Paid", "Cancelled"),
    "Paid": ("Shipped", "Cancelled"),
    "Shipped": (),
    "Cancelled": (),
}
OSCARAPI_INITIAL_ORDER_STATUS = "Pending payment"
OSCARAPI_OVERRIDE_MODULES = ["tests.forked.api"]
OSCAR_DYNAMIC_CLASS_LOADER = "tillgate_oscar.classes.load"

TILLGATE = {
    "ACCOUNTS": {
        "default": {
            "BASE_URL": "http://127.0.0.1:1",
            "MERCHANT_NO": PUBLISHED_MERCHANT_NO,
            "TOKEN": PUBLISHED_TEST_TOKEN,
            "SANDBOX": True,
        },
    },
    "PUBLIC_URL": "http://127.0.0.1:2",
    "NOTIFICATION_THROTTLE_SECONDS": 0,
    "QUERIES_PER_SECOND": 0,
}
