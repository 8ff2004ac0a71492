"""The OpenAPI document of the endpoints, made from the same tables that the reader of requests
uses.

It repeats the interface. Where the interface is open, it describes this emulator under its present
switches.
"""

from __future__ import annotations

from . import contract, money
from .contract import Endpoint, Operation
from .options import Options

Schema = dict[str, object]

_ADDRESS: Schema = {"type": "string", "format": "uri", "pattern": "^https?://[A-Za-z0-9]"}
_WHOLE: Schema = {"type": "string", "pattern": "^0*[1-9][0-9]{0,14}$", "examples": ["1250"]}
_DECIMAL: Schema = {
    "type": "string",
    "pattern": "^(?!0*(\\.0*)?$)[0-9]{1,15}(\\.[0-9]{1,2})?$",
    "examples": ["12.50"],
}
_WORD: Schema = {"type": "string", "minLength": 1}
_CODE: Schema = {"type": "string", "pattern": "^[0-9]{6}$"}

_FIELDS: dict[str, Schema] = {
    "merchantNo": {
        **_WORD,
        "description": "Merchant ID.",
        "examples": [contract.PUBLISHED_MERCHANT_NO],
    },
    "verifySign": {
        "type": "string",
        "pattern": "^[0-9a-f]{32}$",
        "description": "Request signature.",
    },
    "amount": {**_DECIMAL, "description": "Transaction amount, above 0."},
    "reference": {**_WORD, "description": "Merchant's invoice number for the transaction."},
    "storeNo": {**_WORD, "description": "Store ID.", "examples": [contract.PUBLISHED_STORE_NO]},
    "settleCurrency": {
        "type": "string",
        "enum": ["USD", "GBP"],
        "description": "Settlement currency.",
    },
    "osType": {
        "type": "string",
        "enum": list(contract.OS_TYPES),
        "description": "The system of a mobile terminal.",
    },
    "note": {
        "type": "string",
        "description": "Note of the payment, which the notification repeats.",
    },
    "transactionNo": {**_WORD, "description": "The service's number of the transaction."},
    "refundReference": {**_WORD, "description": "Merchant's own name of the refund."},
    "refundAmount": {
        **_DECIMAL,
        "description": "Amount to refund, in the currency of the transaction.",
    },
    "ipnUrl": {**_ADDRESS, "description": "Address for the asynchronous notification."},
    "callbackUrl": {
        **_ADDRESS,
        "description": "Address for the synchronous callback. Placeholders in braces, such as "
        "{amount}, are replaced.",
    },
    "description": {
        "type": "string",
        "description": "Transaction description shown on the invoice.",
    },
    "timeout": {
        "type": "string",
        "pattern": "^[1-9][0-9]{0,5}$",
        "description": f"Time-out in minutes. Default {contract.DEFAULT_TIMEOUT_MINUTES}.",
    },
    "goodsInfo": {
        "type": "string",
        "description": "JSON array of objects with goods_name and quantity, both strings, without "
        "special characters.",
        "examples": ['[{"goods_name":"Tea","quantity":"1"}]'],
    },
}
_REFUND: Schema = {
    "type": "object",
    "required": ["refundTransactionId", "refundAmount", "currency", "settleCurrency"],
    "properties": {
        "refundTransactionId": _WORD,
        "refundReference": _WORD,
        "refundAmount": _DECIMAL,
        "status": _WORD,
    },
}
_SUMMARIES: dict[Operation, str] = {
    "pay": "Create a payment",
    "query": "Query a transaction by the merchant's reference",
    "refund": "Refund part or all of a transaction",
}


def document(options: Options) -> Schema:
    """Return the document for the endpoints that these options serve."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Online payment service (sandbox)",
            "version": "1",
            "description": "An emulator of the payment gateway. No real money moves.",
        },
        "servers": [{"url": options.public_url or "/"}],
        "paths": {
            path: {"post": _endpoint(path, endpoint, options)}
            for path, endpoint in contract.PATHS[options.prefixes].items()
        },
    }


def _endpoint(path: str, endpoint: Endpoint, options: Options) -> Schema:
    body = {"schema": _request(endpoint, options)}
    kinds = {"json": ("application/json",), "form": ("application/x-www-form-urlencoded",)}
    accepted = kinds.get(options.encodings, kinds["json"] + kinds["form"])
    return {
        "operationId": _name(path, endpoint),
        "summary": _SUMMARIES[endpoint.operation],
        "requestBody": {"required": True, "content": dict.fromkeys(accepted, body)},
        "responses": _responses(endpoint, options),
    }


def _name(path: str, endpoint: Endpoint) -> str:
    if endpoint.version == "v3":
        return f"{endpoint.operation}_v3"
    return endpoint.operation + ("" if path.startswith("/online/") else "_under_examples_prefix")


def _responses(endpoint: Endpoint, options: Options) -> Schema:
    """Success is 200; a refusal has the configured status, but an unknown order on query is always
    400 ("Errors").
    """
    done = _envelope(_result(endpoint, options), success=True)
    refused = _envelope(None, success=False)
    responses = {"200": _answer("Done.", done)}
    if options.refusal_http_status == 200:
        responses["200"] = _answer("Done, or refused.", {"oneOf": [done, refused]})
    for status in {options.refusal_http_status, 400} - {200}:
        responses[str(status)] = _answer(
            "Refused: a code of the table, and which field is wrong.",
            refused,
        )
    return dict(responses)


def _request(endpoint: Endpoint, options: Options) -> Schema:
    required, optional = contract.REQUIRED[endpoint], contract.OPTIONAL[endpoint]
    is_v3 = endpoint.version == "v3"
    currencies = options.currencies if is_v3 else contract.V1_CURRENCIES
    own: dict[str, Schema] = {
        "currency": {
            "type": "string",
            "enum": list(currencies),
            "description": "Transaction currency.",
        },
        "terminal": {
            "type": "string",
            "enum": list(contract.TERMINALS[endpoint.version]),
            "description": "Terminal type.",
        },
        "vendor": {
            "type": "string",
            "enum": list(contract.VENDORS[endpoint.version]),
            "description": "Payment channel.",
        },
    }
    fields = {name: own.get(name) or _FIELDS[name] for name in (*required, *optional)}
    if endpoint.operation == "pay":
        # "Number (sent as a string in the example)": creation accepts both, refund accepts text
        # alone.
        number = {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01}
        fields["amount"] = {
            "anyOf": [_DECIMAL, number],
            "description": "Transaction amount, above 0.",
        }
    others: object = {"type": "string"} if options.extra_fields == "allow" else False
    schema: Schema = {
        "type": "object",
        "required": list(required),
        "properties": fields,
        "additionalProperties": others,
    }
    if endpoint == ("pay", "v3"):
        without_decimals = [code for code in options.currencies if not money.decimals_of(code)]
        schema["allOf"] = [
            {
                "if": {"properties": {"terminal": {"enum": list(contract.MOBILE_TERMINALS)}}},
                "then": {"required": ["osType"]},
            },
            {
                "if": {"properties": {"currency": {"enum": without_decimals}}},
                "then": {"properties": {"amount": {"anyOf": [_WHOLE, {"type": "integer"}]}}},
            },
        ]
    elif is_v3:
        schema["anyOf"] = [{"required": [name]} for name in contract.EITHER]
    return schema


def _result(endpoint: Endpoint, options: Options) -> Schema | None:
    """Return the result object, with the amount in the form that the switches select (unspecified
    behaviour 4, 5 and 20).
    """
    operation = endpoint.operation
    if endpoint == ("refund", "v1"):
        return None
    shape = {"pay": options.pay_amount, "query": options.query_amount, "refund": "text"}[operation]
    fields: dict[str, Schema] = {"transactionNo": _WORD, "reference": _WORD}
    if shape != "missing":
        fields["amount"] = (
            _DECIMAL if shape == "text" else {"type": "number", "exclusiveMinimum": 0}
        )
    for name, given in (
        ("currency", options.answer_currency),
        ("settleCurrency", options.answer_settle_currency),
    ):
        if given:
            fields[name] = (
                {"type": "string", "pattern": "^[A-Z]{3}$"}
                if given == "own"
                else {"type": "string", "const": given}
            )
    own = {
        "pay": {"cashierUrl": _ADDRESS},
        "query": {"status": _WORD}
        | ({"transactionType": _WORD} if endpoint.version == "v3" else {}),
        "refund": {"refundAmount": _DECIMAL, "refundTransactionNo": _WORD, "status": _WORD},
    }
    fields |= own[operation]
    more: dict[str, Schema] = (
        {"refundInfo": {"type": "array", "items": _REFUND, "minItems": 1}}
        if operation == "query"
        else {}
    )
    return {"type": "object", "required": list(fields), "properties": {**fields, **more}}


def _envelope(result: Schema | None, *, success: bool) -> Schema:
    code: Schema = (
        {"type": "string", "const": contract.SUCCESS}
        if success
        else {**_CODE, "not": {"const": contract.SUCCESS}}
    )
    fields: dict[str, Schema] = {"ret_code": code, "ret_msg": _WORD}
    if result is not None:
        fields["result"] = result
    schema: Schema = {"type": "object", "required": list(fields), "properties": fields}
    if not success:  # the answer to a wrong signature names its message retMsg
        schema = {
            **schema,
            "required": ["ret_code"],
            "properties": {**fields, "ret_msg": {"type": "string"}, "retMsg": _WORD},
        }
    return schema if result is not None else {**schema, "not": {"required": ["result"]}}


def _answer(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
