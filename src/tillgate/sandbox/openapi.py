"""The OpenAPI document of the three endpoints, made from the same tables that the reader of requests uses.

It repeats the interface. Where the interface is open, it describes this emulator under its present switches.
"""

from __future__ import annotations

from . import contract
from .contract import Operation
from .options import Options

Schema = dict[str, object]

_ADDRESS: Schema = {"type": "string", "format": "uri", "pattern": "^https?://[A-Za-z0-9]"}
_DECIMAL: Schema = {"type": "string", "pattern": "^(?!0*(\\.0*)?$)[0-9]{1,15}(\\.[0-9]{1,2})?$", "examples": ["12.50"]}
_WORD: Schema = {"type": "string", "minLength": 1}
_CODE: Schema = {"type": "string", "pattern": "^[0-9]{6}$"}

_FIELDS: dict[str, Schema] = {
    "merchantNo": {**_WORD, "description": "Merchant ID.", "examples": [contract.PUBLISHED_MERCHANT_NO]},
    "verifySign": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "Request signature."},
    "currency": {"type": "string", "enum": list(contract.CURRENCIES), "description": "Transaction currency."},
    "amount": {**_DECIMAL, "description": "Transaction amount, above 0."},
    "vendor": {"type": "string", "enum": list(contract.PAYMENT_METHODS), "description": "Payment channel."},
    "reference": {**_WORD, "description": "Merchant's invoice number for the transaction."},
    "terminal": {"type": "string", "enum": list(contract.TERMINALS), "description": "Terminal type."},
    "ipnUrl": {**_ADDRESS, "description": "Address for the asynchronous notification."},
    "callbackUrl": {
        **_ADDRESS,
        "description": "Address for the synchronous callback. Placeholders in braces, such as {amount}, are replaced.",
    },
    "description": {"type": "string", "description": "Transaction description shown on the invoice."},
    "timeout": {
        "type": "string",
        "pattern": "^[1-9][0-9]{0,5}$",
        "description": f"Time-out in minutes. Default {contract.DEFAULT_TIMEOUT_MINUTES}.",
    },
    "goodsInfo": {
        "type": "string",
        "description": "JSON array of objects with goods_name and quantity, both strings, without special characters.",
        "examples": ['[{"goods_name":"Tea","quantity":"1"}]'],
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
        "paths": {path: {"post": _endpoint(path, operation, options)} for path, operation in contract.PATHS[options.prefixes].items()},
    }


def _endpoint(path: str, operation: Operation, options: Options) -> Schema:
    body = {"schema": _request(operation, options)}
    kinds = {"json": ("application/json",), "form": ("application/x-www-form-urlencoded",)}
    accepted = kinds.get(options.encodings, kinds["json"] + kinds["form"])
    return {
        "operationId": operation + ("" if path.startswith("/online/") else "_under_examples_prefix"),
        "summary": _SUMMARIES[operation],
        "requestBody": {"required": True, "content": dict.fromkeys(accepted, body)},
        "responses": _responses(operation, options),
    }


def _responses(operation: Operation, options: Options) -> Schema:
    """Success is 200; a refusal has the configured status, but an unknown order on query is always 400 ("Errors")."""
    done = _envelope(_result(operation, options), success=True)
    refused = _envelope(None, success=False)
    responses = {"200": _answer("Done.", done)}
    if options.refusal_http_status == 200:
        responses["200"] = _answer("Done, or refused.", {"oneOf": [done, refused]})
    for status in {options.refusal_http_status, 400 if operation == "query" else options.refusal_http_status} - {200}:
        responses[str(status)] = _answer("Refused: a code of the table, and which field is wrong.", refused)
    return dict(responses)


def _request(operation: Operation, options: Options) -> Schema:
    required = contract.REQUIRED[operation]
    fields = {name: _FIELDS[name] for name in (*required, *contract.OPTIONAL[operation])}
    if operation == "pay":
        # "Number (sent as a string in the example)": creation accepts both, refund accepts text alone.
        number = {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01}
        fields["amount"] = {"anyOf": [_DECIMAL, number], "description": "Transaction amount, above 0."}
    others: object = {"type": "string"} if options.extra_fields == "allow" else False
    return {"type": "object", "required": list(required), "properties": fields, "additionalProperties": others}


def _result(operation: Operation, options: Options) -> Schema | None:
    """Return the result object, with the amount in the form that the switches select (unspecified behaviour 4, 5 and 20)."""
    if operation == "refund":
        return None
    shape = options.pay_amount if operation == "pay" else options.query_amount
    fields: dict[str, Schema] = {"transactionNo": _WORD, "reference": _WORD}
    if shape != "missing":
        fields["amount"] = _DECIMAL if shape == "text" else {"type": "number", "exclusiveMinimum": 0}
    if options.answer_currency:
        fields["currency"] = {"type": "string", "const": options.answer_currency}
    if options.answer_settle_currency:
        fields["settleCurrency"] = {"type": "string", "const": options.answer_settle_currency}
    fields |= {"cashierUrl": _ADDRESS} if operation == "pay" else {"status": _WORD}
    return {"type": "object", "required": list(fields), "properties": fields}


def _envelope(result: Schema | None, *, success: bool) -> Schema:
    code: Schema = {"type": "string", "const": contract.SUCCESS} if success else {**_CODE, "not": {"const": contract.SUCCESS}}
    fields: dict[str, Schema] = {"ret_code": code, "ret_msg": _WORD}
    if result is not None:
        fields["result"] = result
    schema: Schema = {"type": "object", "required": list(fields), "properties": fields}
    if not success:  # the answer to a wrong signature names its message retMsg
        schema = {**schema, "required": ["ret_code"], "properties": {**fields, "ret_msg": {"type": "string"}, "retMsg": _WORD}}
    return schema if result is not None else {**schema, "not": {"required": ["result"]}}


def _answer(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
