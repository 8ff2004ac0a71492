"""For authors of plugins: record a conversation with the gateway once, replay it in every test run.

Install `tillgate[testing]` and name the fixtures in the `conftest.py` beside your tests; nothing loads on its own::

    pytest_plugins = ["tillgate.testing.fixtures"]

A test that uses `cassette` and calls the gateway through `gateway_account` is recorded once, with
`pytest --record-cassettes`, into `cassettes/<name of the test>.yaml`, and from then on runs without any network::

    from tillgate import Gateway, PaymentRequest

    def test_a_payment_can_be_created(cassette, gateway_account, fresh_reference):
        with Gateway(gateway_account) as gateway:
            created = gateway.pay(
                PaymentRequest(reference=fresh_reference("100017"), currency="USD", amount="12.50", method="alipay", terminal="ONLINE",
                               ipn_url="https://shop.example/ipn", callback_url="https://shop.example/back"))
        assert created.payment_url.startswith("http")

The fixtures:

- `cassette`: this test's conversation, a `Cassette`. Blocks the network while it replays.
- `gateway_account`: the `Account` to use; `gateway_dialect`, to be parametrized or overridden, is its dialect.
- `fresh_reference`: `tillgate.new_reference`, whose references replay while a cassette runs.
- `sandbox`: this test's own gateway on real HTTP, for tests without a cassette; `sandbox_options` holds its options.
- `sandbox_when_recording`: that sandbox while a cassette is recorded from it, to pay or to cause a fault; None in a replay.
- `no_network`: any attempt to connect fails the test.
- `cassette_directory`: the folder of the files, to be overridden.

Recordings come from the sandbox unless TILLGATE_BASE_URL, TILLGATE_MERCHANT_NO and TILLGATE_TOKEN name a live account. Every file is
scrubbed; `find_leaks` proves it in a test of yours::

    def test_no_cassette_holds_a_secret():
        assert find_leaks("cassettes") == []
"""

from tillgate.testing.cassettes import Cassette
from tillgate.testing.leaks import Leak, find_leaks

__all__ = ["Cassette", "Leak", "find_leaks"]
