"""Scrubbing: nothing secret or personal stays, and a replay needs nothing else."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vcr.request import Request

from tillgate import Account
from tillgate.testing.leaks import holds_secret
from tillgate.testing.scrubbing import REPLAY_BASE_URL, WRONG_SIGNATURE, Scrubber, digest
from tillgate.wire import signing

HEX_TOKEN = "0123456789abcdef0123456789abcdef"
PUBLISHED_TOKEN = "5cbfb079f15b150122261c8537086d77a"
BASE = "https://pay.gateway.test:8443/api"
LIVE = Account(base_url=BASE, merchant_no="990001", token=HEX_TOKEN)
FORM = "application/x-www-form-urlencoded"


def sent(
    body: str,
    content_type: str = "application/json",
    url: str = f"{BASE}/online/v1/refund",
    at: Account = LIVE,
) -> Any:
    return Scrubber(at).request(Request("POST", url, body.encode(), {"content-type": content_type}))


def response(body: str | bytes, **headers: str) -> dict[str, Any]:
    named = {
        name.replace("_", "-"): [value]
        for name, value in {"content_type": "application/json", **headers}.items()
    }
    return {
        "status": {"code": 200, "message": "OK"},
        "headers": named,
        "body": {"string": body if isinstance(body, bytes) else body.encode()},
    }


def answered(body: str | bytes, scrubber: Scrubber | None = None) -> str:
    kept: bytes = (scrubber or Scrubber(LIVE)).response(response(body))["body"]["string"]
    return kept.decode()


def scrubbed(members: dict[str, Any], account: Account = LIVE) -> dict[str, Any]:
    found = json.loads(answered(json.dumps(members), Scrubber(account)))
    assert isinstance(found, dict)
    return found


class TestAddresses:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (f"{BASE}/x", f"{REPLAY_BASE_URL}/x"),
            ("https://pay.gateway.test:8443/other", f"{REPLAY_BASE_URL}/other"),
            ("HTTP://PAY.gateway.test:8443/", f"{REPLAY_BASE_URL}/"),
            (
                "see pay.gateway.test:8443 or pay.gateway.test",
                "see gateway.example or gateway.example",
            ),
            ("to=%2F%2Fpay.gateway.test%3A8443%2Fx", "to=%2F%2Fgateway.example%2Fx"),
            ("https://shop.example/pay.gateway.tests", "https://shop.example/pay.gateway.tests"),
        ],
    )
    def test_recorded_host_becomes_the_placeholder(self, before: str, after: str) -> None:
        assert scrubbed({"ret_msg": before}) == {"ret_msg": after}

    def test_request_loses_the_base_path(self) -> None:
        kept = sent("{}", url=f"{BASE}/online/v1/refund?merchantNo=990001&amount=%26&verifySign=x")
        assert (
            kept.uri
            == f"{REPLAY_BASE_URL}/online/v1/refund?merchantNo=MERCHANT&amount=%26&verifySign=SIGNATURE"
        )

    def test_other_ports_of_this_machine_stay(self) -> None:
        local = Account(base_url="http://127.0.0.1:8181", merchant_no="1", token="t", sandbox=True)
        text = "http://127.0.0.1:8000/back http://127.0.0.1:81810/ http://127.0.0.1:8181/c"
        assert (
            scrubbed({"ret_msg": text}, local)["ret_msg"]
            == f"http://127.0.0.1:8000/back http://127.0.0.1:81810/ {REPLAY_BASE_URL}/c"
        )

    def test_payment_page_has_one_placeholder(self) -> None:
        url, stand_in = (
            "https://cashier.gateway.test/p/8d1e?session=x&y",
            f"{REPLAY_BASE_URL}/cashier/1",
        )
        said = {
            "ret_msg": f"go to {url} or next={quote(url, safe='')}",
            "result": {"cashierUrl": url},
        }
        assert scrubbed(said) == {
            "ret_msg": f"go to {stand_in} or next={quote(stand_in, safe='')}",
            "result": {"cashierUrl": stand_in},
        }

    def test_payment_page_with_half_a_surrogate_pair(self) -> None:
        url = "https://cashier.gateway.test/p/8d1e\ud83d?session=x"
        assert "8d1e" not in str(
            scrubbed({"ret_msg": f"go to {url}", "result": {"cashierUrl": url}}),
        )

    @pytest.mark.parametrize(
        ("url", "kept"),
        [
            ("https://cashier.gateway.test/p/8d1e?session=x", f"{REPLAY_BASE_URL}/cashier/1"),
            ("http://127.0.0.1:1/c", f"{REPLAY_BASE_URL}/cashier/1"),
            ("/p/8d1e", "***"),
            ("javascript:alert(1)", "***"),
        ],
    )
    def test_payment_page_keeps_its_kind_only(self, url: str, kept: str) -> None:
        assert (
            scrubbed({"ret_code": "000100", "result": {"cashierUrl": url}})["result"]["cashierUrl"]
            == kept
        )

    @pytest.mark.parametrize(
        ("url", "ours"),
        [
            ("https://pay.gateway.test:8443/elsewhere", True),
            ("https://PAY.gateway.test:8443/", True),
            ("https://pay.gateway.test/api", False),
            ("https://shop.example/?u=https://pay.gateway.test:8443/api", False),
        ],
    )
    def test_conversation_is_with_one_host(self, url: str, ours: bool) -> None:
        assert (sent("{}", url=url) is not None) is ours

    def test_default_port_may_be_written_out(self) -> None:
        account = Account(base_url="https://pay.gateway.test", merchant_no="1", token="t")
        assert sent("{}", url="https://pay.gateway.test:443/online", at=account) is not None


class TestMembers:
    def test_request_keeps_order_and_names(self) -> None:
        body = {
            "timeout": 1.50,
            "merchantNo": "990001",
            "amount": "1.00",
            "verifySign": "a" * 32,
            "status": None,
            "z": True,
            "e": "",
        }
        kept = json.loads(sent(json.dumps(body)).body)
        assert kept == {**body, "merchantNo": "MERCHANT", "verifySign": "SIGNATURE"}
        assert list(kept) == list(body)

    def test_numbers_keep_their_text(self) -> None:
        assert '"amount": 99999999999999.90' in answered(
            '{"ret_code":"000100","result":{"amount":99999999999999.90}}',
        )

    def test_form_stays_a_form(self) -> None:
        form = urlencode(
            {
                "merchantNo": "990001",
                "goodsInfo": '[{"goods_name":"Café & Co"}]',
                "verifySign": "a" * 32,
            },
        )
        assert sent(form, FORM).body.decode() == form.replace("990001", "MERCHANT").replace(
            "a" * 32,
            "SIGNATURE",
        )

    def test_unknown_members_lose_their_values(self) -> None:
        found = scrubbed(
            {
                "ret_code": "000100",
                "result": {
                    "payer": {"email": "ada@x.org", "age": 36},
                    "paidAt": "2025-01-01",
                    "ok": True,
                },
            },
        )
        assert found["result"] == {"payer": {"email": "***", "age": 0}, "paidAt": "***", "ok": True}
        assert scrubbed({"result": {"vendor": "alipay", "method": "ada"}})["result"] == {
            "vendor": "alipay",
            "method": "***",
        }

    def test_merchant_number_is_a_whole_word(self) -> None:
        found = scrubbed({"ret_msg": "990001, 990001.50, 1990001, id_990001 and merchant 990001."})
        assert found["ret_msg"] == "MERCHANT, 990001.50, 1990001, id_990001 and merchant MERCHANT."

    def test_dates_in_messages_are_one_date(self) -> None:
        found = scrubbed(
            {"ret_msg": "refunded at 2025-11-18T10:01:02.345+08:00, ask before 2025-12-01 10:00"},
        )
        assert (
            found["ret_msg"] == "refunded at 2000-01-01T00:00:00Z, ask before 2000-01-01T00:00:00Z"
        )

    def test_transaction_has_one_placeholder(self) -> None:
        scrubber = Scrubber(LIVE)

        def created(number: str) -> dict[str, Any]:
            body = json.dumps(
                {
                    "ret_code": "000100",
                    "ret_msg": f"made {number}",
                    "result": {"transactionNo": number},
                },
            )
            found = json.loads(answered(body, scrubber))
            assert isinstance(found, dict)
            return found

        first, second, third = created("3000111"), created("3000222"), created("3000111")
        assert first == third
        assert (first["result"]["transactionNo"], second["ret_msg"]) == (
            "TRANSACTION-1",
            "made TRANSACTION-2",
        )

    def test_short_transaction_number_stays(self) -> None:
        said = {"ret_msg": "7 days", "result": {"transactionNo": "7"}}
        assert scrubbed(said) == said

    def test_transaction_number_may_be_a_number(self) -> None:
        assert scrubbed({"result": {"transactionNo": 3000111}})["result"]["transactionNo"] == 1

    def test_scrubbing_twice_changes_nothing_more(self) -> None:
        scrubber = Scrubber(LIVE)
        once = sent(
            json.dumps(
                {"merchantNo": "990001", "ipnUrl": f"{BASE}/ipn", "transactionNo": "3000111"},
            ),
        )
        again = scrubber.request(once)
        assert (again.uri, again.body, again.headers) == (once.uri, once.body, once.headers)

    def test_store_and_refund_numbers_are_replaced(self) -> None:
        live = LIVE.model_copy(update={"dialect": "v3", "store_no": "990014"})
        asked = json.loads(
            sent('{"storeNo":"990014","refundReference":"R-1","refundAmount":"250"}', at=live).body,
        )
        assert asked == {"storeNo": "300014", "refundReference": "R-1", "refundAmount": "250"}
        listed = [
            {"refundTransactionId": "3000112", "refundReference": "R-1", "refundAmount": "250"},
        ]
        found = scrubbed(
            {
                "ret_msg": "store 990014",
                "result": {"transactionNo": "3000111", "refundInfo": listed},
            },
            live,
        )
        assert found["ret_msg"] == "store 300014"
        assert found["result"]["refundInfo"] == [
            {**listed[0], "refundTransactionId": "TRANSACTION-2"},
        ]


class TestPersonalData:
    """The interface names these places; a gateway or a shop may say anything in them."""

    @pytest.mark.parametrize(
        "said",
        [
            {"ret_msg": "ann@shopper.example has no balance"},
            {"ret_msg": "card 4111 1111 1111 1111 declined"},
            {"ret_msg": "4111111111111111"},
            {"ret_msg": "see /help?for=ann%40shopper.example"},
            {"ret_msg": '{"payer": "Ann Other"}'},
            {"ret_msg": '{"payer": "Ann Oth'},
            {"result": {"description": "for ann@shopper.example"}},
            {"result": {"description": "4111-1111-1111-1111"}},
            {"result": {"status": "paid by ann@shopper.example"}},
            {"result": {"refundInfo": ["Ann Other"]}},
            {"result": {"refundInfo": [["Ann Other"], {"payee": {"name": "Ann Other"}}]}},
            {"ann@shopper.example": "1"},
        ],
    )
    def test_answer_loses_it(self, said: dict[str, Any]) -> None:
        kept = answered(json.dumps(said)).lower()
        assert not [word for word in ("ann@", "ann%40", "ann o", "1111") if word in kept]

    @pytest.mark.parametrize(
        "body",
        [
            "<!doctype html><p>Dear Ann Other, card 4111 1111 1111 1111",
            '{"ret_code":"000100","result":{"payer":"Ann Oth',
            "Ann Other",
            b"\xff\x00 Ann Other",
            '{"payer":"Ann Other","payer":"Ann Other"}',
            '{"payer":"Ann Other","amount":NaN}',
            "[" * 100_000 + '"Ann Other"',
        ],
    )
    def test_non_json_body_is_dropped(self, body: str | bytes) -> None:
        assert answered(body) == "***"

    def test_empty_body_stays_empty(self) -> None:
        assert answered("") == ""

    @pytest.mark.parametrize(
        "member",
        ["email", "name", "phone", "token", "accessToken", "client_secret"],
    )
    def test_request_loses_it(self, member: str) -> None:
        assert json.loads(sent(json.dumps({member: "ann@shopper.example"})).body) == {member: "***"}
        assert (
            sent(urlencode({member: "ann@shopper.example"}), FORM).body
            == urlencode({member: "***"}).encode()
        )

    def test_non_json_request_is_dropped(self) -> None:
        assert sent("Ann Other", "text/plain").body == b"***"


class TestSignatures:
    @staticmethod
    def envelope(**members: Any) -> dict[str, Any]:
        result = {"amount": "1.00", "transactionNo": "3000111", "currency": "USD"}
        return {"ret_code": "000100", "ret_msg": "ok", "result": result, **members}

    def test_signature_over_the_result(self) -> None:
        found = self.envelope()
        found["result"]["verifySign"] = signing.sign(found["result"], HEX_TOKEN)
        result = scrubbed(found)["result"]
        assert result["transactionNo"] == "TRANSACTION-1"
        assert result["verifySign"] == signing.sign(result, PUBLISHED_TOKEN)

    def test_signature_over_the_whole_answer(self) -> None:
        found = self.envelope()
        found["verifySign"] = signing.sign(
            {"ret_code": "000100", "ret_msg": "ok", **found["result"]},
            HEX_TOKEN,
        )
        kept = scrubbed(found)
        assert kept["verifySign"] == signing.sign(
            {"ret_code": "000100", "ret_msg": "ok", **kept["result"]},
            PUBLISHED_TOKEN,
        )

    def test_signature_without_a_result(self) -> None:
        found = {"ret_code": "000100", "ret_msg": "refund success"}
        kept = scrubbed({**found, "verifySign": signing.sign(found, HEX_TOKEN)})
        assert kept == {**found, "verifySign": signing.sign(found, PUBLISHED_TOKEN)}

    @pytest.mark.parametrize("claim", ["a" * 32, "nonsense", 7, ["a"]])
    def test_wrong_signature_stays_wrong(self, claim: object) -> None:
        assert scrubbed(self.envelope(verifySign=claim))["verifySign"] == WRONG_SIGNATURE

    @pytest.mark.parametrize("claim", ["", None])
    def test_empty_signature_stays_empty(self, claim: object) -> None:
        assert scrubbed(self.envelope(verifySign=claim))["verifySign"] == claim


class TestHeaders:
    def test_two_headers_stay(self) -> None:
        headers = {
            "retry_after": "3",
            "location": "/x",
            "set_cookie": "a=b",
            "authorization": "hush",
        }
        kept = Scrubber(LIVE).response(response("{}", **headers))["headers"]
        assert kept == {"content-type": ["application/json"], "retry-after": ["3"]}

    def test_their_values_are_scrubbed(self) -> None:
        kept = Scrubber(LIVE).response(response("{}", retry_after=f"/x?{HEX_TOKEN}"))["headers"]
        assert kept["retry-after"] == ["/x?TOKEN"]


def test_number_may_be_a_secret() -> None:
    account = Account(base_url="https://pay.gateway.test", merchant_no="1", token="12345678")
    found = scrubbed(
        {"result": {"status": {"amount": 12345678, "timeout": 123, "quantity": 10**31}}},
        account,
    )
    assert found == {"result": {"status": {"amount": 0, "timeout": 123, "quantity": 0}}}


def test_no_secret_is_in_a_representation() -> None:
    assert not {HEX_TOKEN, "990001"} & set(repr(Scrubber(LIVE)).replace("'", " ").split())


texts = st.text(max_size=8)
secret_texts = st.builds(
    lambda before, secret, after: f"{before} {secret} {after}",
    texts,
    st.sampled_from([HEX_TOKEN, HEX_TOKEN.upper(), digest(HEX_TOKEN), "ab" * 16]),
    texts,
)
values = st.recursive(
    secret_texts | texts | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts | secret_texts, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_token_is_gone_from_any_json(value: object) -> None:
    for body in (
        json.dumps({"x": value}),
        json.dumps({"result": {"status": value}}),
        json.dumps([value]),
    ):
        for kept in (sent(body).body.decode(), answered(body)):
            assert not holds_secret(kept, [HEX_TOKEN])
