"""The objects of Stripe's API as JSON, with the fields that an ordinary payment has."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

NO_ADDRESS: Json = {
    "city": None,
    "country": None,
    "line1": None,
    "line2": None,
    "postal_code": None,
    "state": None,
}
REQUIREMENTS: Json = {
    "alternatives": [],
    "current_deadline": None,
    "currently_due": [],
    "disabled_reason": None,
    "errors": [],
    "eventually_due": [],
    "past_due": [],
    "pending_verification": [],
}
EVIDENCE = """access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal
    customer_communication customer_email_address customer_name customer_purchase_ip customer_signature
    duplicate_charge_documentation duplicate_charge_explanation duplicate_charge_id product_description receipt refund_policy
    refund_policy_disclosure refund_refusal_explanation service_date service_documentation shipping_address shipping_carrier
    shipping_date shipping_documentation shipping_tracking_number uncategorized_file uncategorized_text"""


def session(
    session_id: str,
    *,
    created: int,
    expires_at: int,
    amount: int,
    currency: str,
    methods: list[str],
    parameters: Json,
    livemode: bool,
    page: str,
) -> Json:
    """Return an open Checkout Session for a request."""
    nothing = """after_expiration allow_promotion_codes billing_address_collection client_secret consent consent_collection
        currency_conversion customer customer_account customer_details invoice managed_payments origin_context payment_intent payment_link
        payment_method_configuration_details permissions recovered_from saved_payment_method_options setup_intent
        shipping_address_collection shipping_cost submit_type subscription wallet_options integration_identifier"""
    return {
        **dict.fromkeys(nothing.split()),
        "id": session_id,
        "object": "checkout.session",
        "adaptive_pricing": {"enabled": True},
        "allowed_payment_method_types": parameters.get("allowed_payment_method_types"),
        "amount_subtotal": amount,
        "amount_total": amount,
        "automatic_tax": {"enabled": False, "liability": None, "provider": None, "status": None},
        "cancel_url": parameters.get("cancel_url"),
        "client_reference_id": parameters.get("client_reference_id"),
        "collected_information": None,
        "created": created,
        "currency": currency,
        "custom_fields": [],
        "custom_text": dict.fromkeys(
            ("after_submit", "shipping_address", "submit", "terms_of_service_acceptance"),
        ),
        "customer_creation": "if_required",
        "customer_email": parameters.get("customer_email"),
        "discounts": [],
        "expires_at": expires_at,
        "invoice_creation": {
            "enabled": False,
            "invoice_data": {
                "account_tax_ids": None,
                "custom_fields": None,
                "description": None,
                "footer": None,
                "issuer": None,
                "metadata": {},
                "rendering_options": None,
            },
        },
        "livemode": livemode,
        "locale": parameters.get("locale"),
        "metadata": dict(parameters.get("metadata", {})),
        "mode": "payment",
        "payment_method_collection": "if_required",
        "payment_method_options": {"card": {"request_three_d_secure": "automatic"}},
        "payment_method_types": methods,
        "payment_status": "unpaid",
        "phone_number_collection": {"enabled": False},
        "shipping_options": [],
        "status": "open",
        "success_url": parameters["success_url"],
        "total_details": {"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
        "ui_mode": "hosted_page",
        "url": f"{page}#fid",
    }


def customer_details(email: str) -> Json:
    """Return the details that the shopper entered on Stripe's page."""
    return {
        "address": {**NO_ADDRESS, "country": "DE"},
        "business_name": None,
        "email": email,
        "individual_name": None,
        "name": "Jenny Rosen",
        "phone": None,
        "tax_exempt": "none",
        "tax_ids": [],
    }


def payment_intent(intent_id: str, *, created: int, session: Json, metadata: Json) -> Json:
    """Return the payment intent that the first attempt to pay a session creates."""
    nothing = """application application_fee_amount automatic_payment_methods canceled_at cancellation_reason customer customer_account
        description last_payment_error latest_charge managed_payments next_action on_behalf_of payment_method
        payment_method_configuration_details processing receipt_email review setup_future_usage shipping source
        statement_descriptor statement_descriptor_suffix transfer_data transfer_group excluded_payment_method_types"""
    return {
        **dict.fromkeys(nothing.split()),
        "id": intent_id,
        "object": "payment_intent",
        "amount": session["amount_total"],
        "amount_capturable": 0,
        "amount_details": {"tip": {}},
        "amount_received": 0,
        "capture_method": "automatic_async",
        "client_secret": f"{intent_id}_secret_fake",
        "confirmation_method": "automatic",
        "created": created,
        "currency": session["currency"],
        "livemode": session["livemode"],
        "metadata": metadata,
        "payment_method_options": {},
        "payment_method_types": session["payment_method_types"],
        "status": "requires_payment_method",
    }


def charge(charge_id: str, *, created: int, intent: Json, status: str, details: Json) -> Json:
    """Return the charge of one attempt; a failed one says that the bank declined it."""
    nothing = """application application_fee application_fee_amount customer description failure_balance_transaction on_behalf_of
        receipt_email receipt_number review shipping source source_transfer statement_descriptor statement_descriptor_suffix
        transfer_data transfer_group"""
    failed = status == "failed"
    return {
        **dict.fromkeys(nothing.split()),
        "id": charge_id,
        "object": "charge",
        "amount": intent["amount"],
        "amount_captured": 0 if failed else intent["amount"],
        "amount_refunded": 0,
        "balance_transaction": None,
        "billing_details": {
            "address": NO_ADDRESS,
            "email": None,
            "name": "Jenny Rosen",
            "phone": None,
            "tax_id": None,
        },
        "calculated_statement_descriptor": "FAKE SHOP",
        "captured": not failed,
        "created": created,
        "currency": intent["currency"],
        "disputed": False,
        "failure_code": "card_declined" if failed else None,
        "failure_message": "Your card was declined." if failed else None,
        "fraud_details": {},
        "livemode": intent["livemode"],
        "metadata": dict(intent["metadata"]),
        "outcome": {
            "advice_code": None,
            "network_advice_code": None,
            "network_decline_code": "05" if failed else None,
            "network_status": "declined_by_network" if failed else "approved_by_network",
            "reason": "generic_decline" if failed else None,
            "risk_level": "normal",
            "seller_message": "The bank did not return any further details."
            if failed
            else "Payment complete.",
            "type": "issuer_declined" if failed else "authorized",
        },
        "paid": not failed,
        "payment_intent": intent["id"],
        "payment_method": intent["payment_method"],
        "payment_method_details": details,
        "receipt_url": None,
        "refunded": False,
        "status": status,
    }


def payment_method_details(method: str) -> Json:
    """Return the details of a charge by this payment method."""
    if method != "card":
        return {"type": method, method: {}}
    return {
        "type": "card",
        "card": {
            "amount_authorized": None,
            "authorization_code": None,
            "brand": "visa",
            "checks": {
                "address_line1_check": None,
                "address_postal_code_check": None,
                "cvc_check": "pass",
            },
            "country": "US",
            "exp_month": 12,
            "exp_year": 2034,
            "fingerprint": "fakefingerprint",
            "funding": "credit",
            "installments": None,
            "last4": "4242",
            "mandate": None,
            "network": "visa",
            "network_token": {"used": False},
            "network_transaction_id": None,
            "regulated_status": None,
            "three_d_secure": None,
            "wallet": None,
        },
    }


DECLINES = {
    "insufficient_funds": "Your card has insufficient funds.",
    "expired_card": "Your card has expired.",
    "incorrect_cvc": "Your card's security code is incorrect.",
}
"""The messages of declines with a reason that the shopper may know; the others are all alike."""


def last_payment_error(charge_id: str, code: str = "generic_decline") -> Json:
    """Return the error that a decline leaves on the payment intent."""
    is_of_card = code in ("expired_card", "incorrect_cvc")
    return {
        "charge": charge_id,
        "code": code if is_of_card else "card_declined",
        **({} if is_of_card else {"decline_code": code}),
        "doc_url": "https://docs.stripe.com/error-codes#card-declined",
        "message": DECLINES.get(code, "Your card was declined."),
        "type": "card_error",
    }


TRANSFER: Final = "customer_balance"
"""Stripe's code of a bank transfer."""


def voucher(method: str, expires: int) -> Json:
    """Return the next action of a payment intent that waits for the payment of a voucher, or for a
    bank transfer, which has no end.
    """
    if method == TRANSFER:
        kind = "display_bank_transfer_instructions"
        page = "https://payments.stripe.com/bank_transfers/instructions/test_fake"
        return {"type": kind, kind: {"hosted_instructions_url": page, "reference": "GDSXW2TQ7HTF"}}
    numbers: Json = {
        "oxxo": {"expires_after": expires, "number": "12345678901234567890123456789012"},
        "boleto": {
            "expires_at": expires,
            "number": "01010101010101010101010101010101010101010101010",
            "pdf": "https://payments.stripe.com/boleto/voucher/test_fake/pdf",
        },
        "konbini": {"expires_at": expires, "stores": {}},
        "multibanco": {"expires_at": expires, "entity": "12345", "reference": "123456789"},
    }
    url = f"https://payments.stripe.com/{method}/voucher/test_YWNjdF9mYWtl"
    kind = f"{method}_display_details"
    return {"type": kind, kind: {**numbers[method], "hosted_voucher_url": url}}


def balance_transaction(charge: Json, currency: str | None = None) -> Json:
    """Return the effect of a charge's money on the balance: 2.9 % and 30 of the fee's units.

    In another currency two of its units are three of the payment's.
    """
    is_converted = currency not in (None, charge["currency"])
    amount = charge["amount"] * 2 // 3 if is_converted else charge["amount"]
    fee = amount * 29 // 1000 + 30
    paid_in = currency or charge["currency"]
    detail = {
        "amount": fee,
        "application": None,
        "currency": paid_in,
        "description": "Stripe processing fees",
        "type": "stripe_fee",
    }
    return {
        "id": charge["id"].replace("ch_", "txn_"),
        "object": "balance_transaction",
        "amount": amount,
        "available_on": charge["created"] + 7 * 86400,
        "balance_type": "payments",
        "created": charge["created"],
        "currency": paid_in,
        "description": charge["description"],
        "exchange_rate": 0.666667 if is_converted else None,
        "fee": fee,
        "fee_details": [detail],
        "net": amount - fee,
        "reporting_category": "charge",
        "source": charge["id"],
        "status": "pending",
        "type": "charge",
    }


def refund(
    refund_id: str,
    *,
    created: int,
    charge: Json,
    amount: int,
    status: str,
    reason: str | None,
    metadata: Json,
) -> Json:
    """Return a refund of a charge."""
    return {
        "id": refund_id,
        "object": "refund",
        "amount": amount,
        "balance_transaction": refund_id.replace("re_", "txn_"),
        "charge": charge["id"],
        "created": created,
        "currency": charge["currency"],
        "customer": None,
        "customer_account": None,
        "destination_details": {
            "card": {
                "reference_status": "pending",
                "reference_type": "acquirer_reference_number",
                "type": "refund",
            },
            "type": "card",
        },
        "metadata": metadata,
        "payment_intent": charge["payment_intent"],
        "payment_method": charge["payment_method"],
        "reason": reason,
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": status,
        "transfer_reversal": None,
    }


def dispute(
    dispute_id: str,
    *,
    created: int,
    charge: Json,
    amount: int,
    due_by: int,
    reason: str,
) -> Json:
    """Return a dispute of a charge that waits for the shop's evidence."""
    return {
        "id": dispute_id,
        "object": "dispute",
        "amount": amount,
        "balance_transactions": [],
        "charge": charge["id"],
        "created": created,
        "currency": charge["currency"],
        "enhanced_eligibility_types": [],
        "evidence": {**dict.fromkeys(EVIDENCE.split()), "enhanced_evidence": {}},
        "evidence_details": {
            "due_by": due_by,
            "enhanced_eligibility": {},
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
            "submission_method": "not_submitted",
        },
        "is_charge_refundable": False,
        "livemode": charge["livemode"],
        "metadata": {},
        "payment_intent": charge["payment_intent"],
        "payment_method_details": {
            "card": {
                "brand": "visa",
                "case_type": "chargeback",
                "network": "visa",
                "network_reason_code": "10.4",
            },
            "type": "card",
        },
        "reason": reason,
        "status": "needs_response",
    }


def review(review_id: str, *, created: int, charge: Json) -> Json:
    """Return an open review of a charge, as a rule of Radar opens it."""
    return {
        **dict.fromkeys(
            ["billing_zip", "closed_reason", "ip_address", "ip_address_location", "session"]
        ),
        "id": review_id,
        "object": "review",
        "charge": charge["id"],
        "created": created,
        "livemode": charge["livemode"],
        "open": True,
        "opened_reason": "rule",
        "payment_intent": charge["payment_intent"],
        "reason": "rule",
    }


def account(account_id: str, *, created: int) -> Json:
    """Return an account that may take payments."""
    return {
        "id": account_id,
        "object": "account",
        "business_profile": None,
        "business_type": "company",
        "capabilities": {"card_payments": "active", "transfers": "active"},
        "charges_enabled": True,
        "controller": {"type": "account"},
        "country": "DE",
        "created": created,
        "default_currency": "eur",
        "details_submitted": True,
        "email": "shop@example.com",
        "external_accounts": listed([], f"/v1/accounts/{account_id}/external_accounts"),
        "future_requirements": REQUIREMENTS,
        "metadata": {},
        "payouts_enabled": True,
        "requirements": REQUIREMENTS,
        "settings": {
            "bacs_debit_payments": {"display_name": "Fake shop", "service_user_number": None},
            "branding": dict.fromkeys(("icon", "logo", "primary_color", "secondary_color")),
            "card_issuing": {"tos_acceptance": {"date": None, "ip": None}},
            "card_payments": {
                "decline_on": {"avs_failure": False, "cvc_failure": False},
                "statement_descriptor_prefix": None,
                "statement_descriptor_prefix_kana": None,
                "statement_descriptor_prefix_kanji": None,
            },
            "dashboard": {"display_name": "Fake shop", "timezone": "Europe/Berlin"},
            "invoices": {"default_account_tax_ids": None, "hosted_payment_method_save": "offer"},
            "payments": {
                "statement_descriptor": "FAKE SHOP",
                "statement_descriptor_kana": None,
                "statement_descriptor_kanji": None,
                "statement_descriptor_prefix_kana": None,
                "statement_descriptor_prefix_kanji": None,
            },
            "payouts": {
                "debit_negative_balances": True,
                "schedule": {"delay_days": 7, "interval": "daily"},
                "statement_descriptor": None,
            },
            "sepa_debit_payments": {},
        },
        "tos_acceptance": {"date": created, "ip": None, "user_agent": None},
        "type": "standard",
    }


def webhook_endpoint(
    endpoint_id: str,
    *,
    created: int,
    url: str,
    enabled_events: list[str],
    api_version: str | None,
    livemode: bool,
) -> Json:
    """Return an endpoint that the owner has registered; only its creation shows its secret."""
    return {
        "id": endpoint_id,
        "object": "webhook_endpoint",
        "api_version": api_version,
        "application": None,
        "created": created,
        "description": None,
        "enabled_events": enabled_events,
        "livemode": livemode,
        "metadata": {},
        "status": "enabled",
        "url": url,
    }


def balance(*, livemode: bool) -> Json:
    """Return an empty balance."""
    return {
        "object": "balance",
        "available": [{"amount": 0, "currency": "eur", "source_types": {"card": 0}}],
        "livemode": livemode,
        "pending": [{"amount": 0, "currency": "eur", "source_types": {"card": 0}}],
    }


def event(
    event_id: str,
    *,
    kind: str,
    created: int,
    subject: Json,
    api_version: str,
    livemode: bool,
) -> Json:
    """Return an event about an object, as a webhook endpoint gets it."""
    return {
        "id": event_id,
        "object": "event",
        "api_version": api_version,
        "created": created,
        "data": {"object": subject},
        "livemode": livemode,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "type": kind,
    }


def listed(data: list[Json], url: str, *, has_more: bool = False) -> Json:
    """Return a page of a list."""
    return {"object": "list", "data": data, "has_more": has_more, "url": url}
