"""The shop's products as data, and their way into the database: twice is the same as once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.sites.models import Site
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone
from oscar.apps.catalogue.categories import create_from_breadcrumbs
from oscar.core.loading import get_model

from example_shop import pictures
from tillgate.django.conf import get_settings

__all__ = ["CATEGORIES", "FRONT_PICTURE", "GOODS", "VOUCHER", "load"]

VOUCHER: Final = "MARGIN10"
FRONT_PICTURE: Final = "front/desk.jpg"
_STOCK: Final = 40

_drawn = functools.cache(pictures.draw)  # the gift cards look alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Goods:
    """A product. One without a parcel travels by e-mail, and its price is not taxed."""

    sku: str
    title: str
    category: str
    price: Decimal
    picture: str
    description: str
    parcel: bool = True


CATEGORIES: Final = {
    "Notebooks": "Paper that takes ink well, bound so that it lies flat.",
    "Pens & ink": "To write and to draw with, and to measure twice.",
    "Letters": "For what should not arrive in an inbox.",
    "Gift cards": (
        "Cards of unlucky amounts. The sandbox takes an amount of thirteen dollars and some cents "
        "for a wish to see something go wrong: "
        "buy one and watch the order come out right."
    ),
}
"""The categories with the text at their head."""

GOODS: Final = (
    Goods(
        sku="FM-101",
        title="Field notebook, dotted",
        category="Notebooks",
        price=Decimal("14.00"),
        picture="field_notebook",
        description="A5, 120 pages with a grid of faint dots, stitched. The cover is card that "
        "ages well in a coat pocket.",
    ),
    Goods(
        sku="FM-102",
        title="Linen journal",
        category="Notebooks",
        price=Decimal("24.00"),
        picture="linen_journal",
        description="192 plain pages between boards in midnight linen, with a ribbon and an "
        "elastic. Lies flat from the first page.",
    ),
    Goods(
        sku="FM-103",
        title="Pocket memos, set of three",
        category="Notebooks",
        price=Decimal("11.50"),
        picture="pocket_memos",
        description="Three slim books of 48 ruled pages in straw, rose and clay. One for the "
        "kitchen, one for the bag, one to give away.",
    ),
    Goods(
        sku="FM-104",
        title="Week planner, undated",
        category="Notebooks",
        price=Decimal("19.00"),
        picture="week_planner",
        description="A week on two pages, and no dates: begin when you like, skip a holiday, lose "
        "nothing.",
    ),
    Goods(
        sku="FM-201",
        title="Cedar pencils, set of six",
        category="Pens & ink",
        price=Decimal("9.00"),
        picture="cedar_pencils",
        description="Six pencils of incense cedar, HB, unsharpened, in six colours that only you "
        "will see.",
    ),
    Goods(
        sku="FM-202",
        title="Fountain pen",
        category="Pens & ink",
        price=Decimal("48.00"),
        picture="fountain_pen",
        description="A medium steel nib in a midnight barrel with brass trim. Takes cartridges, "
        "or a converter, which is in the box.",
    ),
    Goods(
        sku="FM-203",
        title="Bay blue ink",
        category="Pens & ink",
        price=Decimal("12.50"),
        picture="bottled_ink",
        description="30 ml of a grey-blue that dries quickly and washes out of cuffs. In glass.",
    ),
    Goods(
        sku="FM-204",
        title="Brass ruler, 15 cm",
        category="Pens & ink",
        price=Decimal("16.00"),
        picture="brass_ruler",
        description="Solid brass, with millimetres on one edge and inches on the other. It "
        "darkens where you hold it.",
    ),
    Goods(
        sku="FM-301",
        title="Writing set",
        category="Letters",
        price=Decimal("18.00"),
        picture="writing_set",
        description="Twenty sheets and twelve envelopes of cotton paper, 120 grams. Eight spare "
        "sheets for second thoughts.",
    ),
    Goods(
        sku="FM-302",
        title="Landscape postcards",
        category="Letters",
        price=Decimal("8.00"),
        picture="postcards",
        description="Ten cards, five of hills and five of the sea at dusk. The backs are "
        "uncoated, so that any pen writes on them.",
    ),
    Goods(
        sku="FM-303",
        title="Sealing wax, clay",
        category="Letters",
        price=Decimal("13.00"),
        picture="sealing_wax",
        description="A stick for about forty seals. It stays a little soft and survives the post.",
    ),
    Goods(
        sku="FM-304",
        title="Greeting card, rowan",
        category="Letters",
        price=Decimal("5.50"),
        picture="greeting_card",
        description="A folded card with a sprig of rowan, and an envelope in rose. Nothing is "
        "printed inside.",
    ),
    Goods(
        sku="FM-931",
        title="Gift card, 13.31: no answer",
        category="Gift cards",
        price=Decimal("13.31"),
        picture="gift_card",
        parcel=False,
        description="The gateway fails three times when the shop asks about the payment. The page "
        "waits, the sweeper asks again, and the "
        "order is paid a little later.",
    ),
    Goods(
        sku="FM-961",
        title="Gift card, 13.61: lost notice",
        category="Gift cards",
        price=Decimal("13.61"),
        picture="gift_card",
        parcel=False,
        description="The gateway never tells the shop. Pay, and close the tab at the gateway: the "
        "sweeper finds the money.",
    ),
    Goods(
        sku="FM-943",
        title="Gift card, 13.43: wrong amount",
        category="Gift cards",
        price=Decimal("13.43"),
        picture="gift_card",
        parcel=False,
        description="The gateway says that another amount was paid. Such an order is not marked "
        "paid: it needs a person, whom the "
        "dashboard tells.",
    ),
    Goods(
        sku="FM-902",
        title="Gift card, 13.02: lost answer",
        category="Gift cards",
        price=Decimal("13.02"),
        picture="gift_card",
        parcel=False,
        description="The answer to the creation of the payment is lost. Nobody is sent to pay "
        "twice: the shop says so, offers another try, "
        "and watches what became of the first.",
    ),
    Goods(
        sku="FM-976",
        title="Gift card, 13.76: voucher",
        category="Gift cards",
        price=Decimal("13.76"),
        picture="gift_card",
        parcel=False,
        description="The payment page becomes a voucher that is valid for two days. The shop says "
        "until when, with the link, by mail too.",
    ),
    Goods(
        sku="FM-974",
        title="Gift card, 13.74: bank debit",
        category="Gift cards",
        price=Decimal("13.74"),
        picture="gift_card",
        parcel=False,
        description="The money is under way for two days, and then comes. The clock of the "
        "emulator can be moved.",
    ),
    Goods(
        sku="FM-977",
        title="Gift card, 13.77: debit that fails",
        category="Gift cards",
        price=Decimal("13.77"),
        picture="gift_card",
        parcel=False,
        description="The money is under way for two days, and then fails. A mail says so, and the "
        "order can be paid again.",
    ),
)
"""Everything for sale."""


def load(tell: Callable[[str], object] = lambda _title: None) -> None:
    """Write the catalogue into the database and its pictures into the media folder, telling each
    title; a second time only corrects it.
    """
    with transaction.atomic():
        partner, _ = get_model("partner", "Partner").objects.get_or_create(
            code="fold-and-margin",
            defaults={"name": "Fold & Margin"},
        )
        _load_site()
        _load_country()
        _load_voucher()
        for name, description in CATEGORIES.items():
            category = create_from_breadcrumbs(name)
            category.description = description
            category.save()
        for goods in GOODS:
            _load_goods(goods, partner)
            tell(goods.title)
    if not default_storage.exists(FRONT_PICTURE):
        default_storage.save(FRONT_PICTURE, ContentFile(pictures.draw("desk")))


def _load_site() -> None:
    """Name the shop and its host for the links in Oscar's mails: in a new database both are
    example.com.
    """
    site = Site.objects.get_current()
    site.name, site.domain = "Fold & Margin", urlsplit(get_settings().public_url).netloc
    site.save()


def _load_country() -> None:
    get_model("address", "Country").objects.update_or_create(
        iso_3166_1_a2="US",
        defaults={
            "iso_3166_1_a3": "USA",
            "iso_3166_1_numeric": "840",
            "printable_name": "United States",
            "name": "United States of America",
            "is_shipping_country": True,
        },
    )


def _load_goods(goods: Goods, partner: Any) -> None:
    product, _ = get_model("catalogue", "Product").objects.update_or_create(
        upc=goods.sku,
        defaults={
            "title": goods.title,
            "description": f"<p>{goods.description}</p>",
            "meta_description": goods.description,
            "product_class": _product_class(parcel=goods.parcel),
        },
    )
    get_model("catalogue", "ProductCategory").objects.get_or_create(
        product=product,
        category=create_from_breadcrumbs(goods.category),
    )
    stock, is_new = get_model("partner", "StockRecord").objects.get_or_create(
        product=product,
        partner=partner,
        defaults={
            "partner_sku": goods.sku,
            "price": goods.price,
            "price_currency": "USD",
            "num_in_stock": _STOCK,
        },
    )
    if not is_new and stock.price != goods.price:
        stock.price = goods.price
        stock.save()
    if not product.images.exists():
        image = get_model("catalogue", "ProductImage")(product=product, display_order=0)
        image.original.save(f"{goods.sku.lower()}.jpg", ContentFile(_drawn(goods.picture)))


def _product_class(*, parcel: bool) -> Any:
    found, _ = get_model("catalogue", "ProductClass").objects.get_or_create(
        name="Stationery" if parcel else "Gift card",
        defaults={"requires_shipping": parcel, "track_stock": parcel},
    )
    return found


def _load_voucher() -> None:
    everything, _ = get_model("offer", "Range").objects.get_or_create(
        name="Everything",
        defaults={"includes_all_products": True},
    )
    condition, _ = get_model("offer", "Condition").objects.get_or_create(
        range=everything,
        type="Count",
        value=1,
    )
    benefit, _ = get_model("offer", "Benefit").objects.get_or_create(
        range=everything,
        type="Percentage",
        value=10,
    )
    offer, _ = get_model("offer", "ConditionalOffer").objects.get_or_create(
        name="Ten per cent off",
        defaults={"offer_type": "Voucher", "condition": condition, "benefit": benefit},
    )
    now = timezone.now()
    voucher, _ = get_model("voucher", "Voucher").objects.get_or_create(
        code=VOUCHER,
        defaults={
            "name": "Ten per cent off",
            "start_datetime": now - timedelta(days=1),
            "end_datetime": datetime(2100, 1, 1, tzinfo=UTC),
        },
    )
    voucher.offers.add(offer)
