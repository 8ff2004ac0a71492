"""The addresses of the test shop, as the README gives them."""

from django.contrib import admin
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from tests.shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include("payments.urls")),
    path("tillgate/", include("tillgate.django.urls")),
    path("checkout/<int:pk>/", csrf_exempt(views.checkout), name="checkout"),
    path("thanks/<int:pk>/", views.thanks, name="thanks"),
]
