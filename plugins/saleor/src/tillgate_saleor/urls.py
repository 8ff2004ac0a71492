"""All addresses of the App: `path("saleor/", include("tillgate_saleor.urls"))`, beside those of
`tillgate.django`.
"""

from django.urls import path

from tillgate_saleor import dashboard, views, webhooks

app_name = "tillgate_saleor"

urlpatterns = [
    path("api/manifest", views.manifest_page, name="manifest"),
    path("api/register", views.register, name="register"),
    path("api/webhooks/<str:event>", webhooks.webhook, name="webhook"),
    path("app/", dashboard.page, name="page"),
    path("app/content", dashboard.content, name="content"),
    path("app/assets/<str:name>", dashboard.asset, name="asset"),
]
