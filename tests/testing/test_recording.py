"""Recording and replaying one cassette, against a gateway of the standard library that betrays
every secret it knows.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vcr.request import Request
from vcr.serialize import deserialize, serialize
from vcr.serializers import yamlserializer

from tillgate import Account, Gateway, PaymentRequest
from tillgate.testing import Cassette, find_leaks
from tillgate.testing.cassettes import _Readable
from tillgate.wire import references, signing

MERCHANT_NO = "990001"
TOKEN = "0123456789abcdef0123456789abcdef"
TOKEN_MD5 = "8516ac99dc60603295de7bdb6a153530"
PUBLISHED_TOKEN = "5cbfb079f15b150122261c8537086d77a"

Failed = pytest.fail.Exception


class Blabber:
    """A tiny gateway: `answers` are given one after the other, the last one for ever."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}"
        self.answers: list[tuple[int, bytes]] = []
        self.headers: dict[str, str] = {}

    def say(self, answer: object, status: int = 200) -> None:
        self.answers.append(
            (status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()),
        )


@pytest.fixture
def blabber() -> Iterator[Blabber]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            status, body = (
                gateway.answers.pop(0) if len(gateway.answers) > 1 else gateway.answers[0]
            )
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **gateway.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST  # noqa: N815  # the name that http.server looks for

        def log_message(self, *args: object) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        gateway = Blabber(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield gateway
        server.shutdown()
        thread.join()


@pytest.fixture
def live(blabber: Blabber) -> Account:
    return Account(base_url=blabber.base_url, merchant_no=MERCHANT_NO, token=TOKEN, sandbox=True)


@pytest.fixture
def recorder(tmp_path: Path, live: Account) -> Cassette:
    return Cassette(
        tmp_path / "one.yaml",
        live,
        is_recording=True,
        title="a test",
        command="pytest --record-cassettes",
    )


@pytest.fixture
def player(tmp_path: Path) -> Cassette:
    account = Account(
        base_url="https://gateway.example",
        merchant_no="200043",
        token=PUBLISHED_TOKEN,
    )
    return Cassette(
        tmp_path / "one.yaml",
        account,
        is_recording=False,
        title="a test",
        command="pytest --record-cassettes",
    )


def signed(members: dict[str, Any]) -> dict[str, Any]:
    return {
        **members,
        "verifySign": signing.sign({name: str(value) for name, value in members.items()}, TOKEN),
    }


def order(
    reference: str,
    base_url: str = "https://shop.example",
    merchant_no: str = MERCHANT_NO,
) -> PaymentRequest:
    return PaymentRequest(
        reference=reference,
        currency="USD",
        amount="1.00",
        method="alipay",
        terminal="ONLINE",
        ipn_url=f"{base_url}/ipn?merchantNo={merchant_no}",
        callback_url=f"{base_url}/back?to={base_url.replace(':', '%3A').replace('/', '%2F')}&amount={{amount}}",
    )


class TestWhatIsWritten:
    """Before: a gateway that repeats merchantNo, token, signature, its own address. After: none of
    it, and the rest as it was.
    """

    @pytest.fixture
    def betrayal(self, blabber: Blabber, live: Account, recorder: Cassette) -> str:
        reference = references.new_reference("100017")
        request = order(reference, blabber.base_url)
        result = {
            "amount": "1.00",
            "currency": "USD",
            "transactionNo": "300014000098765",
            "reference": reference,
            "cashierUrl": f"{blabber.base_url}/cashier/5f2c8d1e?token={TOKEN}",
            "settleCurrency": "USD",
            "merchantNo": MERCHANT_NO,
            "buyerEmail": "ada@example.org",
        }
        message = (
            f"prepay success for merchant {MERCHANT_NO}. See "
            f"{blabber.base_url}/t/300014000098765 ({TOKEN_MD5})"
        )
        blabber.say({"ret_code": "000100", "ret_msg": message, "result": signed(result)})
        blabber.headers = {
            "Set-Cookie": f"session={TOKEN}",
            "Server": f"host-of-{MERCHANT_NO}",
            "ETag": TOKEN_MD5,
            "Location": f"/login?session={TOKEN}",
            "X-Request-Id": "c0ffee" * 6,
            "Last-Modified": "Tue, 18 Nov 2025 10:00:00 GMT",
        }
        recorder.references.stand_ins[reference.partition("-")[2]] = "0000000000001"
        with recorder.running(), Gateway(live) as gateway:
            created = gateway.pay(request)
            assert created.payment_url.endswith(TOKEN)
            assert created.raw["merchantNo"] == MERCHANT_NO
        recorder.finish()
        return recorder.path.read_text("utf-8")

    @pytest.mark.parametrize(
        "secret",
        [
            TOKEN,
            TOKEN_MD5,
            MERCHANT_NO,
            "127.0.0.1",
            "300014000098765",
            "5f2c8d1e",
            "ada@example.org",
        ],
    )
    def test_recorded_file_holds_no_secrets(
        self,
        betrayal: str,
        secret: str,
    ) -> None:
        """Secrets are removed from both the request and the answer."""
        assert secret not in betrayal

    @pytest.mark.parametrize(
        "header",
        [
            "cookie",
            "etag",
            "date",
            "location",
            "server",
            "last-modified",
            "x-request-id",
            "authorization",
            "host",
        ],
    )
    def test_headers_that_change_or_betray_are_dropped(self, betrayal: str, header: str) -> None:
        assert f"{header}:" not in betrayal.lower()

    def test_rest_of_conversation_stays_readable(
        self,
        betrayal: str,
        recorder: Cassette,
    ) -> None:
        assert betrayal.startswith(
            "# a test\n# Record it again: pytest --record-cassettes\nversion: 1\n",
        )
        for line in (
            '"merchantNo": "MERCHANT"',
            '"verifySign": "SIGNATURE"',
            '"reference": "100017-0000000000001"',
            '"ipnUrl": "https://gateway.example/ipn?merchantNo=MERCHANT"',
            '"callbackUrl": '
            '"https://gateway.example/back?to=https%3A%2F%2Fgateway.example&amount={amount}"',
            '"cashierUrl": "https://gateway.example/cashier/1"',
            '"transactionNo": "TRANSACTION-1"',
            '"buyerEmail": "***"',
            '"ret_msg": "prepay success for merchant MERCHANT. See '
            'https://gateway.example/t/TRANSACTION-1 (TOKEN)"',
            "uri: https://gateway.example/online/v1/secure-pay",
        ):
            assert line in betrayal

    def test_search_for_leaks_finds_none(self, betrayal: str, recorder: Cassette) -> None:
        assert find_leaks(recorder.path.parent, secrets=[TOKEN], environment={}) == []

    def test_replay_verifies_the_recomputed_signature(
        self,
        betrayal: str,
        player: Cassette,
    ) -> None:
        account = Account(
            base_url="https://gateway.example",
            merchant_no="200043",
            token=PUBLISHED_TOKEN,
        )
        request = order("100017-0000000000001", "https://gateway.example", "200043")
        with player.running(), Gateway(account) as gateway:
            created = gateway.pay(request)
        player.finish()
        assert (created.transaction_no, created.payment_url) == (
            "TRANSACTION-1",
            "https://gateway.example/cashier/1",
        )

    def test_vcrpy_logs_no_answer_while_it_records(
        self,
        caplog: pytest.LogCaptureFixture,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        blabber.say({"ret_code": "000100", "ret_msg": TOKEN})
        with recorder.running():
            httpx.post(f"{live.base_url}/online/v1/refund", json={"merchantNo": MERCHANT_NO})
        assert TOKEN not in caplog.text
        assert [record for record in caplog.records if record.name.startswith("vcr")] == []


class TestRecording:
    def test_compressed_answers_are_scrubbed_too(
        self,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.headers = {"Content-Encoding": "gzip"}
        blabber.say(
            gzip.compress(json.dumps({"ret_code": "000100", "ret_msg": f"key {TOKEN}"}).encode()),
        )
        with recorder.running():
            answer = httpx.post(f"{live.base_url}/online/v1/refund", json={})
            assert TOKEN in answer.text
        recorder.finish()
        text = recorder.path.read_text("utf-8")
        assert '"ret_msg": "key TOKEN"' in text
        assert "content-encoding" not in text

    def test_unreadable_answers_are_not_kept(
        self,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.headers = {"Content-Encoding": "rot13"}
        blabber.say(bytes(range(256)))
        with recorder.running():
            httpx.post(f"{live.base_url}/online/v1/refund", json={})
        recorder.finish()
        assert "string: '***'" in recorder.path.read_text("utf-8")

    def test_nothing_is_written_before_test_passes(
        self,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.say({"ret_code": "000100", "ret_msg": ""})
        with recorder.running():
            httpx.post(f"{live.base_url}/online/v1/refund", json={})
        assert not recorder.path.exists()

    def test_recording_with_secret_is_not_written(
        self,
        monkeypatch: pytest.MonkeyPatch,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        monkeypatch.setattr("tillgate.testing.scrubbing.Scrubber._text", lambda self, text: text)
        blabber.say({"ret_code": "000100", "ret_msg": TOKEN})
        with recorder.running():
            httpx.post(f"{live.base_url}/online/v1/refund", json={"merchantNo": MERCHANT_NO})
        with pytest.raises(
            Failed,
            match="was not written, since it would hold a known token or its MD5",
        ) as failure:
            recorder.finish()
        assert TOKEN not in str(failure.value)
        assert not recorder.path.exists()

    def test_test_that_sent_nothing_needs_no_cassette(self, recorder: Cassette) -> None:
        with recorder.running():
            pass
        with pytest.raises(Failed, match="needs no cassette"):
            recorder.finish()

    def test_requests_to_others_are_left_out(
        self,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.say({"ret_code": "000100", "ret_msg": ""})
        with recorder.running():
            httpx.post(f"{live.base_url}/online/v1/refund", json={})
            httpx.post(f"{live.base_url.replace('127.0.0.1', 'localhost')}/a-shop/ipn", json={})
        recorder.finish()
        assert "a-shop" not in recorder.path.read_text("utf-8")


def base64_of(text: str, shift: int = 0) -> str:
    return base64.b64encode(b"x" * shift + text.encode()).decode()


PERSONAL = "Ann Other ann@shopper.example 4111 1111 1111 1111"
SHAPES: dict[str, object] = {
    "e-mail in ret_msg": {"ret_msg": "no such payer: ann@shopper.example"},
    "card number in ret_msg": {"ret_msg": "declined: 4111 1111 1111 1111"},
    "e-mail in description": {"result": {"description": "Cups for ann@shopper.example"}},
    "card number in description": {"result": {"description": "4111111111111111"}},
    "name in a list": {"result": {"refundInfo": ["Ann Other"]}},
    "page": f"<!doctype html><p>Dear {PERSONAL}".encode(),
    "half a JSON": f'{{"ret_code":"000100","result":{{"payer":"{PERSONAL}'.encode(),
    "token": {"ret_msg": f"wrong key x{TOKEN}y"},
    "token in capitals": {"ret_msg": f"x{TOKEN.upper()}y"},
    "token in base64": {"ret_msg": f"Basic {base64_of(TOKEN)}"},
    "token in base64, shifted by one": {"ret_msg": f"Basic {base64_of(TOKEN, 1)}"},
    "token in base64, shifted by two": {"ret_msg": f"Basic {base64_of(TOKEN, 2)}"},
    "token cut to 16": {"ret_msg": f"wrong key {TOKEN[:16]}..."},
    "last 16 of the token": {"ret_msg": f"wrong key ...{TOKEN[16:]}"},
    "token with escapes": b'{"ret_msg": "'
    + "".join(f"\\u{ord(one):04x}" for one in TOKEN).encode()
    + b'"}',
    "token with escapes in a text": {"ret_msg": "".join(f"\\u{ord(one):04x}" for one in TOKEN)},
    "token with percent signs": {"ret_msg": "".join(f"%{ord(one):02x}" for one in TOKEN)},
    "token as entities": {"ret_msg": "".join(f"&#{ord(one)};" for one in TOKEN)},
    "token in hex": {"ret_msg": " ".join(f"{ord(one):02x}" for one in TOKEN)},
    "token in groups": {"ret_msg": "-".join(TOKEN[start : start + 4] for start in range(0, 32, 4))},
    "MD5 of the token": {"ret_msg": f"x{TOKEN_MD5}y"},
    "MD5 cut to 16": {"ret_msg": TOKEN_MD5[:16]},
    "MD5 in base64": {"ret_msg": base64_of(TOKEN_MD5)},
    "raw MD5 in base64": {"ret_msg": base64.b64encode(bytes.fromhex(TOKEN_MD5)).decode()},
    "token as a name": {TOKEN[:16]: "1"},
}


class TestShapes:
    """A gateway may repeat the shopper's data and the token anywhere: either the file is without
    it, or there is no file.
    """

    @pytest.mark.parametrize("shape", SHAPES)
    def test_answer_of_any_shape(
        self,
        shape: str,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.say(SHAPES[shape])
        with recorder.running():
            httpx.post(live.base_url + PATH, json=SENT)
        with contextlib.suppress(Failed):
            recorder.finish()
        text = recorder.path.read_text("utf-8") if recorder.path.exists() else ""
        assert not [
            word
            for word in ("Ann", "ann@", "4111", TOKEN[:12], TOKEN[-12:], TOKEN_MD5[:12])
            if word in text
        ]
        if "token" in shape.lower() or "MD5" in shape:
            assert find_leaks(recorder.path.parent, secrets=[TOKEN], environment={}) == []
            assert not text or "TOKEN" in text or "***" in text

    @pytest.mark.parametrize("member", ["email", "payerName", "note"])
    def test_own_members_of_a_request(
        self,
        member: str,
        blabber: Blabber,
        live: Account,
        recorder: Cassette,
    ) -> None:
        blabber.say({"ret_code": "000100"})
        with recorder.running():
            httpx.post(
                live.base_url + PATH,
                json={**SENT, member: PERSONAL, "description": PERSONAL},
            )
        recorder.finish()
        text = recorder.path.read_text("utf-8")
        assert f'"{member}": "***"' in text
        assert '"description": "Ann Other *** ***"' in text


SENT = {"reference": "A-1", "amount": "1.00", "merchantNo": MERCHANT_NO, "verifySign": "0" * 32}
PATH = "/online/v1/refund"


class TestMatching:
    """Everything but merchantNo and verifySign decides which answer is replayed."""

    @pytest.fixture(autouse=True)
    def on_file(self, blabber: Blabber, live: Account, recorder: Cassette) -> None:
        blabber.say({"ret_code": "000100", "ret_msg": "refund of 1.00"})
        with recorder.running():
            httpx.post(live.base_url + PATH, json=SENT)
        recorder.finish()

    @pytest.fixture
    def send(self, player: Cassette) -> Callable[..., httpx.Response]:
        def send(method: str = "POST", path: str = PATH, **body: Any) -> httpx.Response:
            with player.running():
                return httpx.request(
                    method,
                    f"https://gateway.example{path}",
                    **(body or {"json": SENT}),
                )

        return send

    def test_same_request_is_answered(
        self,
        send: Callable[..., httpx.Response],
        player: Cassette,
    ) -> None:
        assert send().json() == {"ret_code": "000100", "ret_msg": "refund of 1.00"}
        player.finish()

    def test_member_order_and_spacing_are_ignored(
        self,
        send: Callable[..., httpx.Response],
    ) -> None:
        content = json.dumps(dict(reversed(SENT.items())), indent=4)
        assert (
            send(
                content=content,
                headers={"Content-Type": "application/json; charset=utf-8"},
            ).status_code
            == 200
        )

    def test_merchant_no_and_signature_are_ignored(
        self,
        send: Callable[..., httpx.Response],
    ) -> None:
        assert (
            send(json={**SENT, "merchantNo": "200043", "verifySign": "f" * 32}).status_code == 200
        )

    def test_different_amount_replays_no_answer(
        self,
        send: Callable[..., httpx.Response],
    ) -> None:
        with pytest.raises(Failed) as failure:
            send(json={**SENT, "amount": "999"})
        assert 'amount: "1.00" on file, "999" sent' in str(failure.value)
        assert "Record it again: pytest --record-cassettes" in str(failure.value)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"json": {**SENT, "amount": 1.00}}, "amount"),
            ({"json": {**SENT, "reference": "A-2"}}, 'reference: "A-1" on file, "A-2" sent'),
            ({"json": {**SENT, "ipnUrl": "https://shop.example/"}}, "ipnUrl: nothing on file"),
            (
                {"json": {name: SENT[name] for name in ("reference", "amount", "merchantNo")}},
                "verifySign",
            ),
            ({"json": [SENT]}, "body"),
            ({"data": SENT}, "Content-Type"),
            ({"content": b"{", "headers": {"Content-Type": "application/json"}}, "body"),
            ({"path": PATH + "?x=1", "json": SENT}, "x: nothing on file, *** sent"),
            (
                {"path": "/online/v1/tran-query", "json": SENT},
                "it holds POST https://gateway.example/online/v1/refund",
            ),
            ({"method": "PUT", "json": SENT}, "it holds POST"),
        ],
    )
    def test_any_other_difference_is_another_request(
        self,
        send: Callable[..., httpx.Response],
        change: dict[str, Any],
        said: str,
    ) -> None:
        with pytest.raises(Failed) as failure:
            send(**change)
        assert said in str(failure.value)

    def test_complaint_shows_neither_merchant_no_nor_signature(
        self,
        send: Callable[..., httpx.Response],
    ) -> None:
        with pytest.raises(Failed) as failure:
            send(
                json={
                    "merchantNo": "200043",
                    "verifySign": "ab" * 16,
                    "note": f"token {PUBLISHED_TOKEN}",
                },
            )
        assert not {"200043", "ab" * 16, PUBLISHED_TOKEN} & set(
            str(failure.value).replace('"', " ").split(),
        )

    def test_answer_is_replayed_once(self, player: Cassette) -> None:
        with player.running():
            httpx.post(f"https://gateway.example{PATH}", json=SENT)
            with pytest.raises(Failed, match="has been answered already"):
                httpx.post(f"https://gateway.example{PATH}", json=SENT)

    def test_refusal_cannot_be_hushed_up(self, player: Cassette) -> None:
        def hushing() -> None:
            try:
                httpx.post(f"https://gateway.example{PATH}", json={})
            except BaseException:  # noqa: BLE001  # whatever it is, it is told
                return

        with player.running():
            thread = threading.Thread(target=hushing)
            thread.start()
            thread.join()
        with pytest.raises(Failed, match="holds no answer"):
            player.finish()

    def test_unsent_recorded_request_is_reported(self, player: Cassette) -> None:
        with player.running():
            pass
        with pytest.raises(
            Failed,
            match=r"holds requests that the test did not send:\n  POST "
            r"https://gateway\.example/online/v1/refund",
        ):
            player.finish()

    def test_broken_file_is_told(self, player: Cassette) -> None:
        player.path.write_text("interactions: 7", "utf-8")
        with pytest.raises(Failed, match="is not a cassette"), player.running():
            pass


def test_missing_cassette_names_recording_command(player: Cassette) -> None:
    with (
        player.running(),
        pytest.raises(
            Failed,
            match=r"there is no cassette .*one\.yaml\nRecord it: pytest --record-cassettes",
        ),
    ):
        httpx.post(f"https://gateway.example{PATH}", json=SENT)
    with pytest.raises(Failed, match="there is no cassette"):
        player.finish()


def test_forms_are_compared_by_their_pairs(
    blabber: Blabber,
    live: Account,
    recorder: Cassette,
    player: Cassette,
) -> None:
    blabber.say({"ret_code": "000100", "ret_msg": ""})
    with recorder.running():
        httpx.post(live.base_url + PATH, data=SENT)
    recorder.finish()
    assert (
        "body: reference=A-1&amount=1.00&merchantNo=MERCHANT&verifySign=SIGNATURE"
        in recorder.path.read_text("utf-8")
    )
    with player.running():
        httpx.post(f"https://gateway.example{PATH}", data=dict(reversed(SENT.items())))
        with pytest.raises(Failed, match=r"amount: 1\.00 on file, 999 sent"):
            httpx.post(f"https://gateway.example{PATH}", data={**SENT, "amount": "999"})


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.sampled_from(
        [
            b"",
            b"null",
            b"1.10",
            b"a\r\nb ",
            b" a\n b",
            "\u2028\x85\ufeff".encode(),
            "\x85".encode(),
            "a\n\x85".encode(),
        ],
    ),
)
def test_bodies_come_back_from_the_file(body: bytes) -> None:
    request = Request("POST", "https://gateway.example/x", body, {"content-type": "text/plain"})
    answer = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": body}}
    requests, answers = deserialize(
        serialize({"requests": [request], "responses": [answer]}, _Readable),
        yamlserializer,
    )
    assert (requests[0].body or b"", answers[0]["body"]["string"]) == (body, body)
