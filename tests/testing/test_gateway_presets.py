"""The built-in adapter keeps every promise of a gateway plugin, in each preset of the dialect."""

from tests.testing import sandbox_gateway
from tillgate.testing.gateway_conformance import GatewayConformance

NO_WEBHOOK = {
    name: "the interface notifies the payment's own ipnUrl, and an account has no address"
    for name in ("notification_is_a_hint", "forged_notification")
}
V1 = {
    **{name: "version 1 documents no status of a refund" for name in ("pending_refund_succeeds", "pending_refund_fails")},
    "same_refund_id": "version 1 knows no id of a refund: Tillgate sends a refund of unknown outcome never again",
}


class TestReference(GatewayConformance):
    driver = sandbox_gateway.Reference
    declined = {**NO_WEBHOOK, **V1}


class TestExamples(GatewayConformance):
    driver = sandbox_gateway.Examples
    declined = {**NO_WEBHOOK, **V1}


class TestV3(GatewayConformance):
    driver = sandbox_gateway.V3
    declined = NO_WEBHOOK
