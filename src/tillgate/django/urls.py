"""All of Tillgate's pages: `path("payments/", include("tillgate.django.urls"))`."""

from django.urls import path

from tillgate.django.pages import gateways, monitors, shoppers

app_name = "tillgate"

urlpatterns = [
    path("notification/<slug:key>/", gateways.payment_notification, name="payment-notification"),
    path(
        "refund-notification/<slug:key>/",
        gateways.refund_notification,
        name="refund-notification",
    ),
    path("webhook/<str:alias>/", gateways.webhook, name="webhook"),
    path("return/<slug:key>/", shoppers.return_page, name="return"),
    path("status/<slug:key>/", shoppers.status, name="status"),
    path("assets/<str:name>", shoppers.asset, name="asset"),
    path("pay/<str:ticket>/", shoppers.pay, name="pay"),
    path("start/<str:ticket>/", shoppers.start, name="start"),
    path("health/", monitors.health, name="health"),
    path("metrics/", monitors.metrics, name="metrics"),
]
