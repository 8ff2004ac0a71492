"""The built-in adapter keeps every promise of a gateway plugin, in each preset of the dialect."""

from collections.abc import Mapping
from typing import ClassVar

from tests.testing import sandbox_gateway
from tillgate.testing.gateway_conformance import GatewayConformance

NO_WEBHOOK = "the interface notifies the payment's own ipnUrl, and an account has no address"
NO_STATUS = "version 1 documents no status of a refund"
V3_DECLINED = {
    **dict.fromkeys(
        (
            "notification_is_a_hint",
            "notification_gives_the_number",
            "headers_in_any_case",
            "forged_notification",
        ),
        NO_WEBHOOK,
    ),
    "money_on_its_way": "the interface has no word for money on its way",
}
V1_DECLINED = {
    **V3_DECLINED,
    "pending_refund_succeeds": NO_STATUS,
    "pending_refund_fails": NO_STATUS,
    "same_refund_id": "version 1 knows no id of a refund: Tillgate sends a refund of unknown "
    "outcome never again",
}


class TestReference(GatewayConformance):
    driver = sandbox_gateway.Reference
    declined: ClassVar[Mapping[str, str]] = V1_DECLINED


class TestExamples(GatewayConformance):
    driver = sandbox_gateway.Examples
    declined: ClassVar[Mapping[str, str]] = V1_DECLINED


class TestV3(GatewayConformance):
    driver = sandbox_gateway.V3
    declined: ClassVar[Mapping[str, str]] = V3_DECLINED
