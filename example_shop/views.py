"""The front page."""

from typing import Any, Final

from django.core.files.storage import default_storage
from django.views.generic import TemplateView
from oscar.core.loading import get_model

from example_shop.catalogue import FRONT_PICTURE

_SHOWN: Final = 4


class Home(TemplateView):
    """The shop window: its categories, and a few things of the season."""

    template_name = "example_shop/home.html"

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        """Return the categories, and the goods that travel by post, the newest first."""
        product, category = get_model("catalogue", "Product"), get_model("catalogue", "Category")
        goods = (
            product.objects.browsable()
            .base_queryset()
            .filter(product_class__requires_shipping=True)
        )
        return super().get_context_data(
            categories=category.get_root_nodes().filter(is_public=True),
            products=goods.order_by("-date_created")[:_SHOWN],
            desk_url=default_storage.url(FRONT_PICTURE),
            **context,
        )
