"""The shelves, straight from the database: Oscar's own views ask a search engine, which so small a
shop does not run.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.shortcuts import get_object_or_404
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.views.generic import ListView
from oscar.core.loading import get_model

Product, Category = get_model("catalogue", "Product"), get_model("catalogue", "Category")


class CatalogueView(ListView):  # type: ignore[type-arg]  # Oscar's models have no types
    """Everything for sale."""

    template_name = "example_shop/shelf.html"
    context_object_name = "products"
    paginate_by = 24

    def get_queryset(self) -> Any:
        """Return the products that may be shown, with the data of their cards."""
        return Product.objects.browsable().base_queryset().order_by("upc")

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        """Name the shelf."""
        return super().get_context_data(headline=_("Everything"), **context)


class ProductCategoryView(CatalogueView):
    """The products of a category."""

    @cached_property
    def category(self) -> Any:
        """Return the category, unless the shop hides it."""
        return get_object_or_404(Category, pk=self.kwargs["pk"], is_public=True)

    def get_queryset(self) -> Any:
        """Return the products of the category and of those below it."""
        return (
            super()
            .get_queryset()
            .filter(categories__in=self.category.get_descendants_and_self())
            .distinct()
        )

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        """Say which category it is."""
        return {
            **super().get_context_data(**context),
            "category": self.category,
            "headline": self.category.name,
        }


class FacetedSearchView(CatalogueView):
    """The products with a word in their name or description."""

    def get_queryset(self) -> Any:
        """Return the products with the words."""
        found = super().get_queryset()
        # PostgreSQL refuses a NUL in any text
        words = self.request.GET.get("q", "")[:100].replace("\0", " ")
        for word in words.split():
            found = found.filter(Q(title__icontains=word) | Q(description__icontains=word))
        return found

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        """Show the searched words."""
        return {
            **super().get_context_data(**context),
            "headline": _("Found for “%(words)s”") % {"words": self.request.GET.get("q", "")},
        }
