"""Addresses that cross the wire."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from tillgate.wire import urls

NOT_WEB = [
    "",
    "shop.example/ipn",
    "/ipn",
    "//shop.example/ipn",
    "ftp://shop.example/",
    "javascript:alert(1)",
    "https:/shop.example",
    "https://",
    "https:///ipn",
    "https://?x",
    "https://shop.example:0/",
    "https://shop.example:/",
    "https://shop.example:65536/",
    "https://shop.example:port/",
    "https://user:secret@shop.example/",
    "https://user@shop.example/",
    "https://shop.example/a b",
    "https://shop.example/\r\nX: y",
    "https://shop.example/\u00e4",
    "https://sh\u00f6p.example/",
    "https://shop.example/\\",
    "https://{amount}.example/",
    "https://shop..example/",
    "https://.",
    f"https://{'a' * 64}.example/",
    f"https://{'a.' * 130}example/",
    "https://a!b/",
    "https://*/",
    "https://999.1.1.1/",
    "https://1.2.3.4.5/",
    "https://[::1/",
    "https://[::1]x/",
    "https://[v1.x]/",
    "https://[fe80::1%25eth0]/",
    " https://shop.example/",
    "https://shop.example/\x00",
]
WEB = [
    "https://shop.example",
    "http://shop.example/",
    "HTTPS://Shop.Example:8443/a/b;c?d={amount}&e=%20#f",
    "https://127.0.0.1:8000/ipn",
    "https://[2001:db8::1]:443/ipn",
    "http://localhost/",
    "https://my_shop.example./",
    "https://xn--shp-sna.example/@x:y",
]


@pytest.mark.parametrize("address", NOT_WEB)
def test_non_web_address_is_recognized(address: str) -> None:
    assert not urls.is_web_address(address)


@pytest.mark.parametrize("value", [None, 7, b"https://shop.example"])
def test_what_is_not_text_is_no_address(value: object) -> None:
    assert not urls.is_web_address(value)


@pytest.mark.parametrize("address", WEB)
def test_an_absolute_web_address_is_told(address: str) -> None:
    assert urls.is_web_address(address)


@given(st.from_regex(r"\Ahttps?://[a-z0-9.:\[\]@%{}_-]{1,20}(/[a-z{}%]{0,5})?\Z"))
@example("https://[::1]:80/")
@example("https://0x7f.1/")
def test_both_transports_read_accepted_addresses(address: str) -> None:
    if urls.is_web_address(address):
        assert httpx.URL(address).host
        assert URL(address).host
        (urlsplit(address).hostname or "").encode("idna")  # as a look-up of the name does


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://a", True),
        ("HTTPS://a", True),
        ("http://a", False),
        ("httpsx://a", False),
        ("", False),
    ],
)
def test_https_is_told_from_http(address: str, expected: bool) -> None:
    assert urls.is_https(address) is expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://user:secret@shop.example/", "shop.example/"),
        ("https://a/", "https://a/"),
        (None, None),
    ],
)
def test_error_shows_address_without_password(value: object, shown: object) -> None:
    assert urls.without_user(value) == shown


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
        ),
        *(
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
        ),
        *("64:ff9b::7f00:1", "64:ff9b::a01:203", "2002:7f00:1::", "2002:a01:203::1"),
    ],
)
def test_private_addresses_are_known_in_every_spelling(address: str) -> None:
    assert not urls.is_public_address(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)
def test_public_addresses_are_public(address: str) -> None:
    assert urls.is_public_address(address)
