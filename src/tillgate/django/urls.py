"""All of Tillgate's pages: `path("payments/", include("tillgate.django.urls"))`."""

from django.urls import path

from tillgate.django import views

app_name = "tillgate"

urlpatterns = [
    path("notification/<slug:key>/", views.payment_notification, name="payment-notification"),
    path("refund-notification/<slug:key>/", views.refund_notification, name="refund-notification"),
    path("webhook/<str:alias>/", views.webhook, name="webhook"),
    path("return/<slug:key>/", views.return_page, name="return"),
    path("status/<slug:key>/", views.status, name="status"),
    path("assets/<str:name>", views.asset, name="asset"),
    path("pay/<str:ticket>/", views.pay, name="pay"),
    path("start/<str:ticket>/", views.start, name="start"),
]
