"""The addresses of the test project: Tillgate's pages and the admin."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("payments/", include("tillgate.django.urls"))]
