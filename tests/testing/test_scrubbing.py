"""Scrubbing: nothing secret stays, nothing else changes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate import Account
from tillgate.testing.leaks import leaks_in
from tillgate.testing.scrubbing import REPLAY_BASE_URL, WRONG_SIGNATURE, Answer, Call, Exchange, Scrubber
from tillgate.wire import signing

TOKEN = 'k/9+%Ä "secret" token'
HEX_TOKEN = "0123456789abcdef0123456789abcdef"
PUBLISHED_TOKEN = "5cbfb079f15b150122261c8537086d77a"
LIVE = Account(base_url="https://pay.gateway.test:8443/api", merchant_no="990001", token=HEX_TOKEN)


def call(body: str, content_type: str = "application/json", url: str = "https://pay.gateway.test:8443/api/online/v1/refund") -> Call:
    return Call(method="POST", url=url, headers={"content-type": content_type}, body=body.encode())


def answer(body: str | bytes, **headers: str) -> Answer:
    raw = body.encode() if isinstance(body, str) else body
    return Answer(status=200, reason="OK", headers={"content-type": "application/json", **headers}, body=raw)


def scrubbed(members: dict[str, Any], account: Account = LIVE) -> dict[str, Any]:
    found = json.loads(Scrubber(account).answer(answer(json.dumps(members))).body)
    assert isinstance(found, dict)
    return found


class TestAddresses:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("https://pay.gateway.test:8443/api/x", f"{REPLAY_BASE_URL}/x"),
            ("https://pay.gateway.test:8443/other", f"{REPLAY_BASE_URL}/other"),
            ("HTTP://PAY.gateway.test:8443/", f"{REPLAY_BASE_URL}/"),
            ("see pay.gateway.test:8443 or pay.gateway.test", "see gateway.example or gateway.example"),
            ("to=%2F%2Fpay.gateway.test%3A8443%2Fx", "to=%2F%2Fgateway.example%2Fx"),
            (quote(quote("https://pay.gateway.test:8443/api", safe=""), safe=""), quote(quote(REPLAY_BASE_URL, safe=""), safe="")),
            ("https://shop.example/pay.gateway.tests", "https://shop.example/pay.gateway.tests"),
        ],
    )
    def test_recorded_host_becomes_the_placeholder_in_every_spelling(self, before: str, after: str) -> None:
        assert scrubbed({"ret_msg": before}) == {"ret_msg": after}

    def test_address_of_a_request_loses_the_base_and_its_path(self) -> None:
        kept = Scrubber(LIVE).call(
            call("{}", url="https://pay.gateway.test:8443/api/online/v1/refund?merchantNo=990001&b=%26&verifySign=x")
        )
        assert kept.url == f"{REPLAY_BASE_URL}/online/v1/refund?merchantNo=MERCHANT&b=%26&verifySign=SIGNATURE"

    def test_other_ports_of_this_machine_are_the_shops(self) -> None:
        local = Account(base_url="http://127.0.0.1:8181", merchant_no="1", token="t", sandbox=True)
        text = "http://127.0.0.1:8000/back http://127.0.0.1:81810/ http://127.0.0.1:8181/c"
        assert scrubbed({"ret_msg": text}, local)["ret_msg"] == f"http://127.0.0.1:8000/back http://127.0.0.1:81810/ {REPLAY_BASE_URL}/c"

    def test_payment_page_address_with_half_a_surrogate_pair_is_replaced_as_any_other(self) -> None:
        url = "https://cashier.gateway.test/p/8d1e\ud83d?session=x"
        said = {"ret_msg": f"go to {url}", "result": {"cashierUrl": url}}
        [kept] = Scrubber(LIVE).scrub([Exchange(call=call("{}"), answer=answer(json.dumps(said)))])
        stand_in = f"{REPLAY_BASE_URL}/cashier/1"
        assert json.loads(kept.answer.body) == {"ret_msg": f"go to {stand_in}", "result": {"cashierUrl": stand_in}}

    def test_payment_page_address_has_the_same_stand_in_wherever_it_is_named(self) -> None:
        url = "https://cashier.gateway.test/p/8d1e?session=x&y"
        said = {"ret_msg": f"go to {url} or next={quote(url, safe='')}", "result": {"cashierUrl": url}}
        [kept] = Scrubber(LIVE).scrub([Exchange(call=call("{}"), answer=answer(json.dumps(said)))])
        stand_in = f"{REPLAY_BASE_URL}/cashier/1"
        told = {"ret_msg": f"go to {stand_in} or next={quote(stand_in, safe='')}", "result": {"cashierUrl": stand_in}}
        assert json.loads(kept.answer.body) == told

    def test_payment_page_address_of_one_answer_is_gone_from_the_page_of_another(self) -> None:
        url = "https://cashier.gateway.test/p/8d1e"
        first, page = answer(json.dumps({"result": {"cashierUrl": url}})), answer(f'<a href="{url}">back</a>')
        kept = Scrubber(LIVE).scrub([Exchange(call=call("{}"), answer=one) for one in (first, page)])
        assert kept[1].answer.body.decode() == f'<a href="{REPLAY_BASE_URL}/cashier/1">back</a>'

    @pytest.mark.parametrize(
        ("url", "kept"),
        [
            ("https://cashier.gateway.test/p/8d1e?session=x", f"{REPLAY_BASE_URL}/cashier/1"),
            ("http://127.0.0.1:1/c", f"{REPLAY_BASE_URL}/cashier/1"),
            ("/p/8d1e", "/cashier/1"),
            ("javascript:alert(1)", "javascript:alert(1)"),
        ],
    )
    def test_payment_page_address_keeps_its_kind_only(self, url: str, kept: str) -> None:
        assert scrubbed({"ret_code": "000100", "result": {"cashierUrl": url}})["result"]["cashierUrl"] == kept

    @pytest.mark.parametrize(
        ("url", "ours"),
        [
            ("https://pay.gateway.test:8443/elsewhere", True),
            ("https://PAY.gateway.test:8443/", True),
            ("https://pay.gateway.test/api", False),
            ("https://shop.example/?u=https://pay.gateway.test:8443/api", False),
        ],
    )
    def test_conversation_is_with_one_host_and_port(self, url: str, ours: bool) -> None:
        assert Scrubber(LIVE).is_ours(url) is ours

    def test_default_port_may_be_written_out(self) -> None:
        account = Account(base_url="https://pay.gateway.test", merchant_no="1", token="t")
        assert Scrubber(account).is_ours("https://pay.gateway.test:443/online")


class TestMembers:
    def test_request_keeps_order_and_every_other_member(self) -> None:
        body = json.dumps({"z": 1.50, "merchantNo": "990001", "amount": "1.00", "verifySign": "a" * 32, "a": None, "t": True, "e": ""})
        kept = Scrubber(LIVE).call(call(body)).body.decode()
        assert json.loads(kept) == {
            "z": 1.5,
            "merchantNo": "MERCHANT",
            "amount": "1.00",
            "verifySign": "SIGNATURE",
            "a": None,
            "t": True,
            "e": "",
        }
        assert list(json.loads(kept)) == ["z", "merchantNo", "amount", "verifySign", "a", "t", "e"]

    def test_numbers_keep_their_text(self) -> None:
        kept = Scrubber(LIVE).answer(answer('{"ret_code":"000100","result":{"amount":99999999999999.90}}')).body.decode()
        assert '"amount": 99999999999999.90' in kept

    def test_form_stays_a_form(self) -> None:
        form = urlencode({"merchantNo": "990001", "goodsInfo": '[{"goods_name":"Café & Co"}]', "verifySign": "a" * 32})
        kept = Scrubber(LIVE).call(call(form, "application/x-www-form-urlencoded")).body.decode()
        assert kept == form.replace("990001", "MERCHANT").replace("a" * 32, "SIGNATURE")

    def test_answers_keep_no_value_that_the_interface_does_not_name(self) -> None:
        found = scrubbed({"ret_code": "000100", "result": {"payer": {"email": "ada@x.org", "age": 36}, "paidAt": "2025-01-01", "ok": True}})
        assert found["result"] == {"payer": {"email": "***", "age": 0}, "paidAt": "***", "ok": True}
        assert scrubbed({"result": {"vendor": "alipay", "method": "ada"}})["result"] == {"vendor": "alipay", "method": "***"}

    @pytest.mark.parametrize("name", ["token", "accessToken", "client_secret", "PASSWORD"])
    def test_member_called_a_credential_is_one(self, name: str) -> None:
        assert json.loads(Scrubber(LIVE).call(call(json.dumps({name: "hush"}))).body) == {name: "TOKEN"}

    def test_merchant_number_is_a_word_of_its_own(self) -> None:
        found = scrubbed({"ret_msg": "990001, 990001.50, 1990001, id_990001 and merchant 990001."})
        assert found["ret_msg"] == "MERCHANT, 990001.50, 1990001, id_990001 and merchant MERCHANT."

    def test_dates_in_messages_are_one_date(self) -> None:
        found = scrubbed({"ret_msg": "refunded at 2025-11-18T10:01:02.345+08:00, ask before 2025-12-01 10:00"})
        assert found["ret_msg"] == "refunded at 2000-01-01T00:00:00Z, ask before 2000-01-01T00:00:00Z"

    def test_transaction_has_one_stand_in_throughout(self) -> None:
        def created(number: str) -> Exchange:
            body = json.dumps({"ret_code": "000100", "ret_msg": f"made {number}", "result": {"transactionNo": number}})
            return Exchange(call=call(json.dumps({"note": number})), answer=answer(body))

        first, second, third = Scrubber(LIVE).scrub([created("3000111"), created("3000222"), created("3000111")])
        assert first == third
        assert (b"TRANSACTION-1" in first.call.body, b"TRANSACTION-2" in second.call.body) == (True, True)
        assert json.loads(second.answer.body)["ret_msg"] == "made TRANSACTION-2"

    def test_short_transaction_number_is_replaced_in_its_own_member_only(self) -> None:
        found = scrubbed({"ret_msg": "7 days", "result": {"transactionNo": "7"}})
        assert found == {"ret_msg": "7 days", "result": {"transactionNo": "TRANSACTION-1"}}

    def test_transaction_number_that_is_a_number_stays_one(self) -> None:
        assert scrubbed({"result": {"transactionNo": 3000111}})["result"]["transactionNo"] == 1

    def test_scrubbing_twice_changes_nothing_more(self) -> None:
        once = Scrubber(LIVE).call(call(json.dumps({"merchantNo": "990001", "ipnUrl": "https://pay.gateway.test:8443/api/ipn"})))
        assert Scrubber(LIVE).call(once) == once


class TestLooseBodies:
    """A body that cannot be parsed: an error page, or JSON that stops in the middle, perhaps in the middle of a secret."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('{"merchantNo":"990001","verifySign":"0a1b', '{"merchantNo":"MERCHANT","verifySign":"SIGNATURE'),
            ('{"result":{"transactionNo":"30001', '{"result":{"transactionNo":"TRANSACTION-1'),
            ('{"cashierUrl":"https://pay.gateway.test:8443/c/8d', f'{{"cashierUrl":"{REPLAY_BASE_URL}/cashier/1'),
            (
                '{"cashierUrl":"https:\\/\\/pay.gateway.test:8443\\/c\\/8d',
                f'{{"cashierUrl":"{REPLAY_BASE_URL}/cashier/1'.replace("/", "\\/"),
            ),
            ("<a href='https://pay.gateway.test:8443/api/login'>", f"<a href='{REPLAY_BASE_URL}/login'>"),
            ("try https://pay.gateway.t", "try https://gateway.examp"),
            (f"<p>sign with {HEX_TOKEN} or {'ab' * 16}</p>", "<p>sign with TOKEN or ***</p>"),
            ('{"ret_code":"000100","ret_code":"000200"}', '{"ret_code":"000100","ret_code":"000200"}'),
            ('{"amount":NaN}', '{"amount":NaN}'),
            ("", ""),
        ],
    )
    def test_only_secrets_are_replaced(self, before: str, after: str) -> None:
        assert Scrubber(LIVE).answer(answer(before)).body.decode() == after

    def test_bytes_that_are_no_text_come_back_as_they_were(self) -> None:
        assert Scrubber(LIVE).answer(answer(b"\xff\x00 " + HEX_TOKEN.encode())).body == b"\xff\x00 TOKEN"

    def test_half_a_reference_is_replaced_by_half_its_stand_in(self) -> None:
        scrubber = Scrubber(LIVE, {"7Q2MZK4RXW3DA": "0000000000001"})
        assert scrubber.answer(answer('{"reference":"100017-7Q2MZK')).body == b'{"reference":"100017-000000'

    def test_deeply_nested_json_is_scrubbed_as_text(self) -> None:
        body = "[" * 100_000 + f'"{HEX_TOKEN}"'
        assert HEX_TOKEN.encode() not in Scrubber(LIVE).answer(answer(body)).body


class TestSignatures:
    @staticmethod
    def envelope(**members: Any) -> dict[str, Any]:
        return {
            "ret_code": "000100",
            "ret_msg": "ok",
            "result": {"amount": "1.00", "transactionNo": "3000111", "currency": "USD"},
            **members,
        }

    def test_signature_over_the_result_is_made_again_over_the_result(self) -> None:
        found = self.envelope()
        found["result"]["verifySign"] = signing.sign(found["result"], HEX_TOKEN)
        result = scrubbed(found)["result"]
        assert result["transactionNo"] == "TRANSACTION-1"
        assert result["verifySign"] == signing.sign(result, PUBLISHED_TOKEN)

    def test_signature_over_the_whole_answer_is_made_again_over_the_whole_answer(self) -> None:
        found = self.envelope()
        found["verifySign"] = signing.sign({"ret_code": "000100", "ret_msg": "ok", **found["result"]}, HEX_TOKEN)
        kept = scrubbed(found)
        assert kept["verifySign"] == signing.sign({"ret_code": "000100", "ret_msg": "ok", **kept["result"]}, PUBLISHED_TOKEN)

    def test_signature_without_a_result_is_made_again(self) -> None:
        found = {"ret_code": "000100", "ret_msg": "refund success"}
        kept = scrubbed({**found, "verifySign": signing.sign(found, HEX_TOKEN)})
        assert kept == {**found, "verifySign": signing.sign(found, PUBLISHED_TOKEN)}

    @pytest.mark.parametrize("claim", ["a" * 32, "nonsense", 7, ["a"]])
    def test_wrong_signature_stays_wrong(self, claim: object) -> None:
        kept = scrubbed(self.envelope(verifySign=claim))
        assert kept["verifySign"] == WRONG_SIGNATURE

    @pytest.mark.parametrize("claim", ["", None])
    def test_empty_signature_stays_empty(self, claim: object) -> None:
        assert scrubbed(self.envelope(verifySign=claim))["verifySign"] == claim


texts = st.text(max_size=8)
secret_texts = st.builds(
    lambda before, secret, after: before + secret + after,
    texts,
    st.sampled_from([HEX_TOKEN, HEX_TOKEN.upper(), "8516ac99dc60603295de7bdb6a153530", quote(HEX_TOKEN), "ab" * 16]),
    texts,
)
values = st.recursive(
    secret_texts | texts | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | secret_texts, inner, max_size=3),
    max_leaves=8,
)


class TestEverySecretEverywhere:
    """Properties: wherever a gateway or a shop puts a secret, it is gone."""

    @given(values)
    def test_json_of_requests_and_answers(self, value: object) -> None:
        for body in (json.dumps({"x": value}), json.dumps({"result": {"status": value}}, ensure_ascii=False), json.dumps([value])):
            try:
                body.encode()
            except UnicodeEncodeError:
                continue
            for kept in (Scrubber(LIVE).call(call(body)).body, Scrubber(LIVE).answer(answer(body)).body):
                assert leaks_in(kept.decode(), secrets=[HEX_TOKEN]) == []

    @given(secret_texts, st.data())
    def test_bodies_cut_anywhere(self, value: str, data: st.DataObject) -> None:
        body = json.dumps({"ret_msg": value, "verifySign": "0a1b" * 8, "result": {"transactionNo": "3000111"}})
        cut = data.draw(st.integers(0, len(body)))
        kept = Scrubber(LIVE).answer(answer(body[:cut])).body.decode()
        assert leaks_in(kept, secrets=[HEX_TOKEN]) == []
        assert "0a1b" not in kept

    @given(st.dictionaries(st.text(min_size=1, max_size=5) | secret_texts, secret_texts | texts, min_size=1, max_size=4))
    def test_forms_queries_and_headers(self, pairs: dict[str, str]) -> None:
        try:
            form = urlencode(pairs)
        except UnicodeEncodeError:
            return
        sent = call(form, "application/x-www-form-urlencoded", f"https://pay.gateway.test:8443/api/x?{form}")
        kept = Scrubber(LIVE).call(sent)
        assert leaks_in(kept.url + "\n" + kept.body.decode(), secrets=[HEX_TOKEN]) == []
        headers = {"retry-after": f"/x?{form}", "location": form, "set-cookie": form, "authorization": form}
        assert leaks_in(str(Scrubber(LIVE).answer(answer("{}", **headers)).headers), secrets=[HEX_TOKEN]) == []


def test_token_of_a_few_letters_is_a_word_of_its_own() -> None:
    account = Account(base_url="https://pay.gateway.test", merchant_no="1", token="t")
    assert scrubbed({"ret_msg": "not t"}, account) == {"ret_msg": "not TOKEN"}
    assert (leaks_in("not", secrets=["t"]), leaks_in("a t", secrets=["t"])) == ([], ["a known token or its MD5"])


def test_number_may_be_a_secret() -> None:
    account = Account(base_url="https://pay.gateway.test", merchant_no="1", token="12345678")
    assert scrubbed({"result": {"status": [12345678, 123, 10**31]}}, account) == {"result": {"status": [0, 123, 0]}}


@pytest.mark.parametrize("spelt", [TOKEN, quote(TOKEN, safe=""), json.dumps(TOKEN)[1:-1]])
def test_token_of_any_characters_is_found_in_every_spelling(spelt: str) -> None:
    account = Account(base_url="https://pay.gateway.test", merchant_no="1", token=TOKEN)
    for body in (json.dumps({"ret_msg": f"<{spelt}>"}), f"<p>{spelt}</p>", json.dumps({"ret_msg": spelt}, ensure_ascii=False)):
        kept = Scrubber(account).answer(answer(body)).body.decode()
        assert "TOKEN" in kept
        assert "secret" not in kept


def test_no_secret_is_in_a_representation() -> None:
    scrubber = Scrubber(LIVE)
    sent = call(json.dumps({"verifySign": "a" * 32, "merchantNo": "990001"}), url="https://pay.gateway.test:8443/?verifySign=b")
    shown = f"{scrubber!r} {sent!r} {answer(HEX_TOKEN)!r} {Exchange(call=sent, answer=answer(HEX_TOKEN))!r}"
    assert not {HEX_TOKEN, "990001", "verifySign"} & set(shown.replace("'", " ").split())


class TestVersion3:
    def test_the_store_and_the_numbers_of_refunds_are_replaced_and_the_rest_is_kept(self) -> None:
        live = LIVE.model_copy(update={"dialect": "v3", "store_no": "990014"})
        sent = json.loads(Scrubber(live).call(call('{"storeNo":"990014","refundReference":"R-1","refundAmount":"250"}')).body)
        assert sent == {"storeNo": "300014", "refundReference": "R-1", "refundAmount": "250"}
        listed = [{"refundTransactionId": "3000112", "refundReference": "R-1", "refundAmount": "250"}]
        found = scrubbed({"ret_msg": "store 990014", "result": {"transactionNo": "3000111", "refundInfo": listed}}, live)
        assert found["ret_msg"] == "store 300014"
        assert found["result"]["refundInfo"] == [{**listed[0], "refundTransactionId": "TRANSACTION-2"}]
