"""dj-stripe's endpoint."""

from django.urls import include, path

urlpatterns = [path("stripe/", include("djstripe.urls", namespace="djstripe"))]
