"""The browsers of shoppers: phones and tablets, and those of other apps, where some payment methods
cannot open.
"""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client, RequestFactory

from tillgate import GatewayProfile
from tillgate.django.models import Payment
from tillgate.django.pages import browsers
from tillgate.django.pages.browsers import app_of, opens_in
from tillgate.django.pages.forms import MethodForm
from tillgate.django.pages.tickets import start_url
from tillgate.shop import app_in_the_way
from tillgate.testing.world import World

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148"
AGENTS = {
    "WeChat": f"{IPHONE} MicroMessenger/8.0.49(0x18003137) NetType/WIFI Language/zh_CN",
    "Alipay": f"{IPHONE} NebulaSDK/1.8.100112 AlipayDefined(nt:WIFI) AliApp(AP/10.5.90) "
    "AlipayClient/10.5.90",
    "Instagram": f"{IPHONE} Instagram 331.0.2.29.109 (iPhone14,5; iOS 17_5; en_US)",
    "Facebook": f"{IPHONE} [FBAN/FBIOS;FBDV/iPhone11,2;FBMD/iPhone;FBLC/en_GB;FBOP/5]",
    "LINE": f"{IPHONE} Safari Line/14.8.0",
    "KakaoTalk": f"{IPHONE} KAKAOTALK 10.8.2",
}
"""The user agents of the browsers of apps, by the names of the apps."""

SAFARI = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.5 Safari/605"
)


def _pay_page(world: World, agent: str) -> str:
    answer = world.client.get(world.way_to_pay(world.order()), headers={"User-Agent": agent})
    return html.unescape(answer.content.decode())


@pytest.mark.parametrize("name", AGENTS)
def test_browser_of_app_is_known(name: str) -> None:
    app = app_of(AGENTS[name])
    assert app is not None
    assert app.name == name


@pytest.mark.parametrize("agent", ["", SAFARI, IPHONE, "Mozilla/5.0 Online/1 Firefox/130.0"])
def test_ordinary_browser_opens_every_method(agent: str) -> None:
    assert app_of(agent) is None
    assert opens_in(app_of(agent), "alipay")


@pytest.mark.parametrize(
    ("name", "opens", "opens_not"),
    [
        ("WeChat", "wechatpay wechat_pay paypal card", "alipay alipay_hk kakaopay"),
        ("Alipay", "alipay alipay_hk unionpay", "wechatpay wechat_pay venmo"),
        ("Instagram", "paypal creditcard bkash", "alipay wechatpay kakaopay cashapppay"),
        ("Facebook", "paypal", "alipay wechat_pay"),
        ("LINE", "paypal", "alipay kakaopay"),
        ("KakaoTalk", "kakaopay kakao_pay", "alipay wechatpay"),
    ],
)
def test_app_opens_its_own_wallet_only(name: str, opens: str, opens_not: str) -> None:
    """At any gateway, and however it spells the code."""
    app = app_of(AGENTS[name])
    assert [code for code in opens.split() if not opens_in(app, code)] == []
    assert [code for code in opens_not.split() if opens_in(app, code)] == []


def test_shop_learns_app_in_the_way(rf: RequestFactory) -> None:
    request = rf.get("/", headers={"User-Agent": AGENTS["WeChat"]})
    assert app_in_the_way(request, "alipay") == "WeChat"
    assert app_in_the_way(request, "wechatpay") == ""
    assert app_in_the_way(rf.get("/"), "alipay") == ""


def test_no_rule_names_a_gateway() -> None:
    words = {word for app in browsers.APPS for word in (app.name, *app.marks, *app.own)}
    words |= browsers._PAID_IN_AN_APP
    assert not {word.casefold() for word in words} & set(GatewayProfile.names())


def test_method_that_cannot_open_comes_last(world: World) -> None:
    """The page says so, has its own link to copy, and offers another method first."""
    plain, inside = MethodForm(), MethodForm(user_agent=AGENTS["WeChat"])
    codes = [method.code for method in inside.methods]
    assert sorted(codes) == sorted(method.code for method in plain.methods)
    assert plain.methods[0].code == "alipay"
    assert codes[0] == inside.initial["method"] == "wechatpay"
    remarks = [bool(one.remark) for one in inside.methods]
    assert remarks == sorted(remarks)
    page = _pay_page(world, AGENTS["WeChat"])
    assert "cannot open inside WeChat. To pay that way, open this page in your browser." in page
    assert 'value="http://testserver/payments/pay/' in page


def test_ordinary_browser_gets_no_note(world: World) -> None:
    page = _pay_page(world, IPHONE)
    assert "your browser" not in page
    assert "tillgate-link" not in page


def test_chosen_method_that_cannot_open_starts_nothing(world: World) -> None:
    """The page sends the shopper to another browser, and the copied link works there."""
    order, wechat = world.order(), Client(headers={"User-Agent": AGENTS["WeChat"]})
    path = world.way_to_pay(order)
    for answer in (
        wechat.post(path, {"method": "alipay"}),
        wechat.get(start_url("smallest-shop", order, "alipay")),
    ):
        assert answer.status_code == 200
        page = html.unescape(answer.content.decode())
        assert 'role="alert"' in page
        assert not Payment.objects.exists()
    link = page.partition('id="tillgate-link"')[2].partition('value="')[2].partition('"')[0]
    safari = Client(headers={"User-Agent": IPHONE})
    assert safari.post(link, {"method": "alipay"}).status_code == 200
    assert Payment.objects.get().method == "alipay"


def test_open_page_is_not_offered_in_app(world: World) -> None:
    """The pay page and the return page lead to no page that the app does not open."""
    payment = world.start(world.order())
    pages = [world.way_to_pay(payment.order.key), f"/payments/return/{payment.return_key}/"]
    for path in pages:
        for agent, is_offered in ((IPHONE, True), (AGENTS["WeChat"], False)):
            page = world.client.get(path, headers={"User-Agent": agent}).content.decode()
            assert (f'href="{html.escape(payment.payment_url)}"' in page) is is_offered


@pytest.mark.parametrize(
    ("agent", "cookie", "terminal"),
    [
        (IPHONE, "", "WAP"),
        (SAFARI, "", "ONLINE"),
        (SAFARI, "1", "WAP"),
        ("Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15", "", "WAP"),
        ("Mozilla/5.0 (Phone; OpenHarmony 5.0) ArkWeb/4.1.6.1 Mobile", "", "WAP"),
        ("Mozilla/5.0 (Tablet; OpenHarmony 5.0) ArkWeb/4.1.6.1", "", "WAP"),
        ("Mozilla/5.0 (PC; OpenHarmony 5.0) ArkWeb/4.1.6.1", "", "ONLINE"),
    ],
)
def test_tablets_count_as_phones(world: World, agent: str, cookie: str, terminal: str) -> None:
    """An iPad says that it is a Mac; the cookie says that it has a touch screen."""
    visitor: Any = Client(headers={"User-Agent": agent})
    if cookie:
        visitor.cookies["tillgate_touch"] = cookie
    visitor.post(world.way_to_pay(world.order()), {"method": "alipay"})
    assert Payment.objects.get().terminal == terminal
