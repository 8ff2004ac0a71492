"""All addresses: `path("payments/", include("tillgate_oscar.urls"))`. Tillgate's own are among them, under their namespace `tillgate`."""

from django.urls import include, path

from tillgate_oscar import views

urlpatterns = [
    path("order/", include(([path("<str:ticket>/", views.order, name="order")], "tillgate_oscar"))),
    path("", include("tillgate.django.urls")),
]
