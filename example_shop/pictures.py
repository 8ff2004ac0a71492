"""Draws the shop's pictures: flat shapes with a soft shadow, the same bytes every time. None is
downloaded, and none is kept in git.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Final

from PIL import Image, ImageDraw, ImageFilter

__all__ = ["PICTURES", "draw"]

_SIDE: Final = 800
_FINER: Final = 2  # drawn larger and then reduced, which makes edges smooth
_COARSER: Final = 4
_UNIT: Final = _SIDE * _FINER / 100  # shapes are placed in hundredths of the picture's side

INK, BAY, CLAY, SAGE, STRAW, PAPER, CREAM, STONE = (
    "#22324a",
    "#3f6a8a",
    "#b4533a",
    "#7d9478",
    "#d9b36a",
    "#fbf8f1",
    "#efe6d4",
    "#b9b2a3",
)
CEDAR, ROSE, MIST, BRASS = "#8a5a3c", "#d8a79b", "#c9d6dc", "#c49a4a"

Points = Iterable[tuple[float, float]]


class Layer:
    """A sheet of transparent paper; one is laid upon another with a shadow."""

    def __init__(self) -> None:
        side = _SIDE * _FINER
        self.image = Image.new("RGBA", (side, side), (0, 0, 0, 0))
        self._pen = ImageDraw.Draw(self.image)

    def box(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: str,
        *,
        round_: float = 0,
    ) -> Layer:
        """Draw a rectangle, with round corners if wanted."""
        self._pen.rounded_rectangle(
            [v * _UNIT for v in (left, top, right, bottom)],
            radius=round_ * _UNIT,
            fill=fill,
        )
        return self

    def shape(self, points: Points, fill: str) -> Layer:
        """Draw a polygon."""
        self._pen.polygon([(x * _UNIT, y * _UNIT) for x, y in points], fill=fill)
        return self

    def disc(self, x: float, y: float, radius: float, fill: str) -> Layer:
        """Draw a circle."""
        self._pen.ellipse(
            [
                (x - radius) * _UNIT,
                (y - radius) * _UNIT,
                (x + radius) * _UNIT,
                (y + radius) * _UNIT,
            ],
            fill=fill,
        )
        return self

    def line(self, points: Points, fill: str, width: float = 0.5) -> Layer:
        """Draw a line with round joints."""
        self._pen.line(
            [(x * _UNIT, y * _UNIT) for x, y in points],
            fill=fill,
            width=round(width * _UNIT),
            joint="curve",
        )
        return self

    def dots(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: str,
        step: float = 4,
    ) -> Layer:
        """Draw a grid of dots."""
        y = top
        while y <= bottom:
            x = left
            while x <= right:
                self.disc(x, y, 0.28, fill)
                x += step
            y += step
        return self

    def rules(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: str,
        step: float = 4.5,
    ) -> Layer:
        """Draw the lines of ruled paper."""
        y = top
        while y <= bottom:
            self.line([(left, y), (right, y)], fill, 0.28)
            y += step
        return self

    def lay(
        self,
        upper: Layer,
        angle: float = 0,
        shift: tuple[float, float] = (0, 0),
        shade: float = 0.22,
    ) -> Layer:
        """Lay another sheet on this one, turned about the middle and moved, with its shadow."""
        side, moved = self.image.width, (round(shift[0] * _UNIT), round(shift[1] * _UNIT))
        image = upper.image.rotate(angle, resample=Image.Resampling.BILINEAR, translate=moved)
        # a shadow is blurred anyway: a small one costs a sixteenth
        fallen = image.getchannel("A").reduce(_COARSER)
        fallen = fallen.rotate(
            0,
            translate=(round(0.9 * _UNIT / _COARSER), round(1.5 * _UNIT / _COARSER)),
        )
        fallen = fallen.filter(ImageFilter.GaussianBlur(0.9 * _UNIT / _COARSER)).point(
            lambda alpha: int(alpha * shade),
        )
        shadow = Image.new("RGBA", image.size, (30, 24, 16, 0))
        shadow.putalpha(fallen.resize((side, side), Image.Resampling.BILINEAR))
        self.image.alpha_composite(shadow)
        self.image.alpha_composite(image)
        return self


def _on(ground: str) -> Layer:
    return Layer().box(0, 0, 100, 100, ground)


def _book(
    cover: str,
    spine: str,
    *,
    left: float = 26,
    top: float = 16,
    right: float = 74,
    bottom: float = 84,
) -> Layer:
    book = Layer().box(left + 1.2, top + 1.2, right + 1.4, bottom + 1.2, PAPER, round_=2)
    return book.box(left, top, right, bottom, cover, round_=2.4).box(
        left,
        top,
        left + 6,
        bottom,
        spine,
        round_=2.4,
    )


def _label(book: Layer, lines: int = 2) -> Layer:
    book.box(40, 28, 66, 43, CREAM, round_=1)
    for number in range(lines):
        book.line([(44, 33 + 5 * number), (62 - 6 * number, 33 + 5 * number)], INK, 0.7)
    return book


def field_notebook() -> Layer:
    """Draw an open dotted page under a closed notebook."""
    page = Layer().box(20, 18, 80, 86, PAPER, round_=1).dots(25, 24, 76, 82, STONE)
    book = _label(_book(SAGE, "#66805f"))
    return _on("#e7ebe0").lay(page, 9, (7, 1)).lay(book, -7, (-5, 0))


def linen_journal() -> Layer:
    """Draw a linen journal with a ribbon."""
    book = _book(INK, "#182438")
    for x in range(34, 74, 2):
        book.line([(x, 17), (x, 83)], "#2a3c57", 0.22)
    book.box(62, 16, 64.2, 84, CLAY).shape(
        [(48, 84), (51, 84), (51, 95), (49.5, 92.5), (48, 95)],
        CLAY,
    )
    return _on("#e3e8ec").lay(book, 6)


def pocket_memos() -> Layer:
    """Draw three pocket memos in a fan."""
    picture = _on("#f3e7df")
    for cover, spine, angle, shift in (
        (STRAW, "#c29c54", 17, (-13, 3)),
        (ROSE, "#c48f83", 1, (0, -1)),
        (CLAY, "#974430", -15, (13, 3)),
    ):
        picture.lay(
            _label(_book(cover, spine, left=34, right=70, top=22, bottom=78), 1),
            angle,
            shift,
        )
    return picture


def week_planner() -> Layer:
    """Draw an open week."""
    spread = Layer().box(12, 24, 88, 78, PAPER, round_=1.5).line([(50, 24), (50, 78)], STONE, 0.4)
    for x in (16, 54):
        for y in (31, 46, 61):
            spread.box(x, y, x + 7, y + 2, CLAY if (x, y) == (16, 31) else BAY, round_=0.6).rules(
                x,
                y + 5,
                x + 30,
                y + 10,
                MIST,
                2.8,
            )
    pencil = (
        Layer()
        .box(30, 50, 72, 53, STRAW, round_=0.4)
        .shape([(72, 50), (77, 51.5), (72, 53)], CREAM)
        .shape([(75.4, 51), (77, 51.5), (75.4, 52)], INK)
    )
    return (
        _on("#e4eaee")
        .lay(spread, -4)
        .lay(pencil.box(27, 50, 31, 53, ROSE, round_=0.8), 32, (14, 16))
    )


def cedar_pencils() -> Layer:
    """Draw six pencils side by side."""
    picture = _on("#efe8da")
    for number, colour in enumerate((INK, BAY, SAGE, STRAW, CLAY, CEDAR)):
        x = 26.5 + number * 8
        pencil = Layer().box(x, 26, x + 6, 84, colour).box(x + 2, 26, x + 4, 84, _lighter(colour))
        pencil.shape([(x, 26), (x + 3, 14), (x + 6, 26)], CREAM).shape(
            [(x + 2.1, 17.6), (x + 3, 14), (x + 3.9, 17.6)],
            colour,
        )
        picture.lay(pencil.box(x, 80, x + 6, 84, BRASS), 0, (0, -2 if number % 2 else 1))
    return picture


def fountain_pen() -> Layer:
    """Draw a fountain pen over a line of writing."""
    sheet = Layer().box(18, 20, 82, 88, PAPER, round_=1).rules(25, 32, 75, 82, MIST, 6)
    sheet.line(
        [
            (26 + i * 1.3, 49 + (1.6 if i % 3 == 0 else -1.6 if i % 3 == 1 else 0.4))
            for i in range(22)
        ],
        INK,
        0.6,
    )
    pen = (
        Layer()
        .box(16, 47, 60, 54, INK, round_=3)
        .box(58, 47.6, 74, 53.4, "#31435f", round_=1.4)
        .box(54, 46.6, 56.4, 54.4, BRASS)
    )
    pen.box(24, 45.4, 50, 46.8, BRASS, round_=0.7).shape(
        [(74, 48.4), (85, 50.5), (74, 52.6)],
        BRASS,
    ).line([(77, 50.5), (85, 50.5)], INK, 0.25)
    return _on("#dfe6ea").lay(sheet, 5).lay(pen, 33, (3, 4))


def bottled_ink() -> Layer:
    """Draw a bottle of ink and a written line."""
    bottle = (
        Layer()
        .box(30, 42, 70, 82, "#dfe8ec", round_=6)
        .box(33, 52, 67, 79, BAY, round_=4.5)
        .box(40, 33, 60, 43, "#dfe8ec")
    )
    bottle.box(37, 22, 63, 35, INK, round_=2).box(38, 59, 62, 73, CREAM, round_=1).line(
        [(42, 64), (58, 64)],
        INK,
        0.8,
    ).line([(42, 68.5), (53, 68.5)], CLAY, 0.7)
    swatch = (
        Layer()
        .box(14, 62, 52, 88, PAPER, round_=1)
        .line([(19, 76), (25, 70), (29, 79), (34, 70), (38, 79), (46, 72)], BAY, 1.5)
    )
    return _on("#e9ece6").lay(swatch, 8, (-3, 1)).lay(bottle, 0, (6, -3))


def brass_ruler() -> Layer:
    """Draw a brass ruler and a set square."""
    ruler = Layer().box(8, 44, 92, 57, BRASS, round_=1)
    for number in range(40):
        ruler.line(
            [(11 + 2 * number, 44), (11 + 2 * number, 50 if number % 5 == 0 else 47)],
            "#6f5320",
            0.3,
        )
    square = (
        Layer()
        .shape([(28, 78), (76, 78), (28, 26)], MIST)
        .shape([(36, 71), (57, 71), (36, 48)], "#f0ece2")
    )
    return _on("#f0ece2").lay(square, 0, (4, 2), 0.14).lay(ruler, 28, (0, -2))


def writing_set() -> Layer:
    """Draw sheets and envelopes."""
    sheet = (
        Layer()
        .box(24, 10, 76, 78, PAPER, round_=0.6)
        .rules(31, 24, 69, 60, STONE, 5)
        .box(31, 16, 45, 17.6, CLAY)
    )
    return (
        _on("#e6e9df")
        .lay(sheet, 7, (6, -1))
        .lay(sheet, -2, (-4, 0))
        .lay(_envelope(CREAM, "#e2d6bf"), -5, (0, 16))
    )


def _envelope(front: str, flap: str) -> Layer:
    return (
        Layer()
        .box(18, 34, 82, 74, front, round_=1)
        .shape([(18, 34), (50, 58), (82, 34)], flap)
        .line([(18, 74), (42, 52)], flap, 0.4)
        .line([(82, 74), (58, 52)], flap, 0.4)
    )


def postcards() -> Layer:
    """Draw two landscapes on cards."""
    hills = (
        Layer()
        .box(14, 28, 86, 74, PAPER, round_=1)
        .box(17, 31, 83, 71, "#cfe0e6")
        .disc(66, 43, 5, STRAW)
    )
    hills.shape([(17, 60), (36, 46), (56, 60), (83, 50), (83, 71), (17, 71)], SAGE).shape(
        [(17, 66), (44, 57), (83, 68), (83, 71), (17, 71)],
        "#5f7a5b",
    )
    sea = (
        Layer()
        .box(14, 28, 86, 74, PAPER, round_=1)
        .box(17, 31, 83, 71, "#f1cfae")
        .box(17, 53, 83, 71, BAY)
        .disc(45, 53, 7, CLAY)
        .box(17, 53, 83, 62, BAY)
    )
    for y in (57, 61, 65):
        sea.line([(35 + y - 57, y), (55 - y + 57, y)], "#d9a98d", 0.6)
    return _on("#ece7dd").lay(hills, 11, (5, -8)).lay(sea, -6, (-3, 10))


def sealing_wax() -> Layer:
    """Draw a letter under a seal, and a stick of wax."""
    seal = Layer()
    for x, y, radius in (
        (50, 52, 9.4),
        (44, 47, 4.6),
        (57, 48, 4.4),
        (45, 58, 4.2),
        (56, 58, 4.6),
        (50, 44, 4.2),
    ):
        seal.disc(x, y, radius, CLAY)
    seal.disc(50, 52, 7, "#974430").disc(50, 52, 6.1, "#a94a33").line(
        [(47, 55.5), (50, 48.5), (53, 55.5)],
        ROSE,
        0.8,
    ).line([(48.2, 53), (51.8, 53)], ROSE, 0.7)
    stick = Layer().box(16, 18, 62, 24, CLAY, round_=1.2).box(16, 19.4, 62, 20.6, "#c96f57")
    return (
        _on("#f1e8df")
        .lay(_envelope(PAPER, "#ece3d3"), -4, (0, 6))
        .lay(seal, -4, (0, 6))
        .lay(stick, 10, (14, 1))
    )


def greeting_card() -> Layer:
    """Draw a folded card with a sprig."""
    card = Layer().box(27, 14, 73, 82, PAPER, round_=0.8).line([(50, 70), (50, 28)], SAGE, 0.9)
    for y, side in ((62, 1), (55, -1), (48, 1), (41, -1), (34, 1)):
        card.shape(
            [(50, y), (50 + 6 * side, y - 8), (50 + 13 * side, y - 8.5), (50 + 8 * side, y - 2)],
            SAGE if y % 2 else "#66805f",
        )
    card.disc(50, 26, 2.4, CLAY).disc(46, 29, 1.7, CLAY).disc(54, 29.4, 1.7, CLAY)
    return _on("#ebe6dc").lay(_envelope(ROSE, "#c99489"), 8, (6, 12)).lay(card, -5, (-3, -2))


def gift_card() -> Layer:
    """Draw a gift card with a bow."""
    card = (
        Layer()
        .box(14, 30, 86, 74, INK, round_=4)
        .box(14, 49, 86, 54, CLAY)
        .box(66, 30, 71, 74, CLAY)
    )
    card.shape([(68.5, 51.5), (58, 44), (58, 59)], ROSE).shape(
        [(68.5, 51.5), (79, 44), (79, 59)],
        ROSE,
    ).disc(68.5, 51.5, 2.6, CREAM)
    return _on("#e9e4ee").lay(
        card.line([(21, 38), (40, 38)], CREAM, 1).line([(21, 42.5), (33, 42.5)], MIST, 0.7),
        -6,
    )


def desk() -> Layer:
    """Draw the desk of the front page."""
    book = _label(_book(CLAY, "#974430"))
    sheet = Layer().box(14, 12, 66, 84, PAPER, round_=0.8).rules(22, 26, 58, 74, MIST, 5)
    pen = (
        Layer()
        .box(24, 48, 62, 53, INK, round_=2)
        .box(60, 48.4, 72, 52.6, "#31435f", round_=1)
        .shape([(72, 49), (79, 50.5), (72, 52)], BRASS)
    )
    leaf = Layer().line([(18, 86), (40, 58)], "#66805f", 0.8)
    for x, y in ((22, 81), (27, 75), (32, 68), (37, 62)):
        leaf.shape([(x, y), (x - 8, y - 4), (x - 9, y - 11), (x - 1, y - 7)], SAGE).shape(
            [(x, y), (x + 5, y + 6), (x + 12, y + 5), (x + 7, y - 2)],
            "#66805f",
        )
    return (
        _on("#dde3dc")
        .lay(sheet, 10, (-4, 0))
        .lay(book, -12, (16, 4))
        .lay(pen, 52, (-8, 6))
        .lay(leaf, 0, (-8, 6), 0.16)
    )


def _lighter(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"#{min(255, red + 26):02x}{min(255, green + 26):02x}{min(255, blue + 26):02x}"


PICTURES: Final[dict[str, Callable[[], Layer]]] = {
    function.__name__: function
    for function in (
        field_notebook,
        linen_journal,
        pocket_memos,
        week_planner,
        cedar_pencils,
        fountain_pen,
        bottled_ink,
        brass_ruler,
        writing_set,
        postcards,
        sealing_wax,
        greeting_card,
        gift_card,
        desk,
    )
}
"""The drawings, by name."""


def draw(name: str) -> bytes:
    """Return a picture as JPEG."""
    picture = PICTURES[name]().image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=88, optimize=True)
    return file.getvalue()
