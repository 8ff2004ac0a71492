"""All addresses: `path("payments/", include("tillgate_oscar.urls"))`. Tillgate's own are among
them, under their namespace `tillgate`.
"""

from django.urls import include, path

from tillgate_oscar import views

_pages = [
    path("<str:ticket>/", views.order, name="order"),
    path("<str:ticket>/change/", views.change, name="change"),
]
urlpatterns = [
    path("order/", include((_pages, "tillgate_oscar"))),
    path("", include("tillgate.django.urls")),
]
