"""The browsers of shoppers: which are a phone's, which are built into another app, and which
payment methods cannot open there. No rule names a gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

from tillgate.wire.methods import Terminal

TOUCH_COOKIE: Final = "tillgate_touch"
"""Set by `choose.js` in a browser that says it is a Mac's and has a touch screen: an iPad's."""

_PHONES: Final = (
    "Mobi",
    "Android",
    "iPhone",
    "iPad",
    "(Phone; OpenHarmony",
    "(Tablet; OpenHarmony",
)
"""The marks of phones and tablets in a user agent. OpenHarmony's computers have another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An app that opens links in a browser of its own. `marks` are parts of its user agent, and
    `own` are the codes of the wallets that the app itself is.
    """

    name: str
    marks: tuple[str, ...]
    own: tuple[str, ...] = ()


APPS: Final = (
    App(name="WeChat", marks=("MicroMessenger/",), own=("wechatpay",)),
    App(name="Alipay", marks=("AlipayClient",), own=("alipay", "alipayhk")),
    App(name="KakaoTalk", marks=("KAKAOTALK",), own=("kakaopay",)),
    App(name="LINE", marks=(" Line/",), own=("linepay",)),
    App(name="Instagram", marks=("Instagram ",)),
    App(name="Facebook", marks=("FBAN/", "FBAV/", "FB_IAB/")),
)

_PAID_IN_AN_APP: Final = frozenset(
    {
        "alipay",
        "alipayhk",
        "cashapp",
        "cashapppay",
        "kakaopay",
        "linepay",
        "mobilepay",
        "swish",
        "truemoney",
        "twint",
        "venmo",
        "vipps",
        "wechatpay",
    },
)
"""The wallets with a payment page that hands the shopper over to the wallet's app, by their codes
without "_" and "-". The browser of another app does not open it. Wallets with a page of their own
to log in to, such as PayPal or bKash, are paid in any browser.
"""


def app_of(user_agent: str) -> App | None:
    """Return the app with a browser that sends this user agent, or None for an ordinary browser."""
    return next((app for app in APPS if any(mark in user_agent for mark in app.marks)), None)


def opens_in(app: App | None, method: str) -> bool:
    """Tell whether a payment method can be paid in an app's own browser; in an ordinary one, any
    method can.
    """
    code = method.lower().replace("_", "").replace("-", "")
    return app is None or code not in _PAID_IN_AN_APP or code in app.own


def user_agent_of(request: HttpRequest) -> str:
    """Return the user agent of a request, or empty text."""
    return request.headers.get("User-Agent", "")


def terminal_of(request: HttpRequest) -> Terminal:
    """Return the shopper's terminal: the browser of a phone or tablet, or a desktop's. The
    terminals of apps are only for apps that declare them.
    """
    is_phone = any(mark in user_agent_of(request) for mark in _PHONES)
    return Terminal.WAP if is_phone or TOUCH_COOKIE in request.COOKIES else Terminal.ONLINE
