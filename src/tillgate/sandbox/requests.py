"""Reading a client's request, strictly to the interface: bytes to values, or a refusal that names
the field.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import parse_qsl, urlsplit

from . import contract, money, signing
from .contract import Endpoint
from .options import Options
from .transactions import Goods, Order

MAXIMUM_BODY_BYTES = 256 * 1024
_MAXIMUM_FIELDS = 100
_MINUTES = re.compile(r"[0-9]{1,6}", re.ASCII)
_ADDRESS = re.compile(r"[!-\[\]-~]+")
"""What an address can hold: ASCII without spaces and backslashes; all else is escaped there."""
_QUANTITY = re.compile(r"[0-9]{1,9}", re.ASCII)


class Refusal(Exception):
    """The gateway refuses: a code of the family's table (unspecified behaviour 12) and a message
    that names the field.
    """

    def __init__(
        self,
        code: str,
        message: str,
        http_status: int = 0,
        *,
        message_name: str = "ret_msg",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.message_name = message_name


class Bare(str):
    """A JSON value that was not a string, as it stood on the wire: signatures cover exactly these
    characters.
    """

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(contract.BAD_VALUE, f"{name} is not a JSON value")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a name that appears twice: two readers could each sign and obey a different one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal(contract.BAD_VALUE, "the body gives a parameter twice")
    return found


_DECODER = json.JSONDecoder(
    parse_float=Bare,
    parse_int=Bare,
    parse_constant=_refuse_constant,
    object_pairs_hook=_unique,
)


def read_body(content_type: str, body: bytes, encodings: str) -> dict[str, str]:
    """Return the parameters of a JSON or form body (unspecified behaviour 3); an absent and an
    empty value are both ''.
    """
    if len(body) > MAXIMUM_BODY_BYTES:
        raise Refusal(contract.BAD_VALUE, f"the body is longer than {MAXIMUM_BODY_BYTES} bytes")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" and encodings != "form":
        return _read_json(body)
    if kind == "application/x-www-form-urlencoded" and encodings != "json":
        return _read_form(body)
    raise Refusal(contract.BAD_VALUE, f"Content-Type {kind or 'missing'!r} is not accepted here")


def _read_json(body: bytes) -> dict[str, str]:
    try:
        found = _DECODER.decode(body.decode())
    except (ValueError, RecursionError):
        raise Refusal(contract.BAD_VALUE, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise Refusal(contract.BAD_VALUE, "the body is not a JSON object")
    return {_encodable(name): _read_member(name, value) for name, value in found.items()}


def _read_member(name: str, value: object) -> str:
    if isinstance(value, str):
        return _encodable(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return Bare("true" if value else "false")
    raise Refusal(contract.BAD_VALUE, f"{name} must be a string")


def _encodable(text: str) -> str:
    """Refuse lone surrogates: JSON can spell them, UTF-8 and so the signature cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refusal(contract.BAD_VALUE, "the body holds half a character") from None
    return text


def _read_form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAXIMUM_FIELDS,
        )
    except ValueError:
        raise Refusal(contract.BAD_VALUE, "the body is not a form") from None
    return {name: str(value) for name, value in _unique(list(pairs)).items()}


def check(endpoint: Endpoint, parameters: Mapping[str, str], options: Options) -> str:
    """Check the fields that all operations share (merchant, signature, then required fields), and
    return the merchant's number.

    The answers to a wrong signature are those of docs.2pay.co (guide/signing-api-parameters,
    payments/payment) and docs.yuansfer.com.
    """
    merchant_no = parameters.get("merchantNo", "")
    for name in ("merchantNo", signing.FIELD):
        if not parameters.get(name):
            raise Refusal(contract.MISSING, f"{name} is required")
    token = options.merchants.get(merchant_no)
    if token is None:
        raise Refusal(contract.DENIED, "merchantNo is not known")
    if not signing.matches(parameters, token, empty_parameters=options.empty_parameters):
        if endpoint == ("pay", "v1"):
            raise Refusal(contract.SYSTEM_ERROR, "", 400)
        raise Refusal(contract.SYSTEM_ERROR, "data error : verifySign", 400, message_name="retMsg")
    for name in contract.REQUIRED[endpoint]:
        if not parameters.get(name):
            raise Refusal(contract.MISSING, f"{name} is required")
    if endpoint.version == "v3":
        _check_v3(endpoint, parameters, options)
    for name, value in parameters.items():
        known = name in contract.REQUIRED[endpoint] or name in contract.OPTIONAL[endpoint]
        if not known and options.extra_fields == "refuse":
            raise Refusal(contract.BAD_VALUE, f"{name} is not a parameter of this operation")
        may_be_number = (endpoint.operation, name) == ("pay", "amount") or (
            options.json_numbers == "allow" and name in contract.JSON_NUMBERS and value.isdigit()
        )
        if known and isinstance(value, Bare) and not may_be_number:
            raise Refusal(contract.BAD_VALUE, f"{name} must be a string")
    if options.reference_pattern and not re.fullmatch(
        options.reference_pattern,
        parameters.get("reference", ""),
    ):
        raise Refusal(contract.BAD_VALUE, "reference is not of the accepted form")
    return merchant_no


def _check_v3(endpoint: Endpoint, parameters: Mapping[str, str], options: Options) -> None:
    if endpoint.operation != "pay" and not any(map(parameters.get, contract.EITHER)):
        raise Refusal(contract.MISSING, "transactionNo or reference is required")
    if parameters["storeNo"] not in options.stores:
        raise Refusal(contract.NO_RECORD, "storeNo has no related record")


def read_order(endpoint: Endpoint, parameters: Mapping[str, str], options: Options) -> Order:
    """Read the fields of "Create payment", all of them, or refuse."""
    is_v3 = endpoint.version == "v3"
    allowed_values = {
        "currency": options.currencies if is_v3 else contract.V1_CURRENCIES,
        "vendor": contract.VENDORS[endpoint.version],
        "terminal": contract.TERMINALS[endpoint.version],
        **(
            {"osType": contract.OS_TYPES}
            if is_v3 and parameters["terminal"] in contract.MOBILE_TERMINALS
            else {}
        ),
    }
    for name, allowed in allowed_values.items():
        if parameters.get(name) not in allowed:
            raise Refusal(contract.BAD_VALUE, f"{name} is not one of {', '.join(allowed)}")
    settle_currency = parameters["settleCurrency"] if is_v3 else "USD"
    if money.decimals_of(settle_currency) is None:
        raise Refusal(contract.BAD_VALUE, "settleCurrency is not a currency")
    return Order(
        reference=parameters["reference"],
        # a plain text from here on: the switches decide the form in answers
        amount=str(parameters["amount"]),
        units=read_amount("amount", parameters, parameters["currency"], options),
        currency=parameters["currency"],
        settle_currency=settle_currency,
        vendor=parameters["vendor"],
        terminal=parameters["terminal"],
        ipn_url=read_address(parameters, "ipnUrl", options),
        callback_url=read_address(parameters, "callbackUrl", options),
        description=parameters.get("description", ""),
        timeout_minutes=_read_minutes(parameters.get("timeout", "")),
        goods=_read_goods(parameters.get("goodsInfo", ""), options),
        version=endpoint.version,
        note=parameters.get("note", "") if is_v3 else "",
    )


def read_amount(name: str, parameters: Mapping[str, str], currency: str, options: Options) -> int:
    """Read an amount: above zero, no more decimals than its currency has, within the configured
    limits (unspecified behaviour 17).
    """
    text = parameters[name]
    units = money.units_of(text, currency)
    if units is None:
        raise Refusal(
            contract.BAD_VALUE,
            f"{name} is not a decimal with at most {money.decimals_of(currency)} decimals",
        )
    if units <= 0:
        raise Refusal(contract.BAD_VALUE, f"{name} must be more than 0")
    amount, least, most = (
        money.plain(text),
        money.plain(options.minimum_amount),
        money.plain(options.maximum_amount),
    )
    if amount is not None and least is not None and amount < least:
        raise Refusal(contract.BAD_VALUE, f"{name} is less than {options.minimum_amount}")
    if amount is not None and most is not None and amount > most:
        raise Refusal(contract.BAD_VALUE, f"{name} is more than {options.maximum_amount}")
    return units


def read_address(parameters: Mapping[str, str], name: str, options: Options) -> str:
    """Read an absolute http(s) address. The emulator will call it or send a browser there, so it
    refuses everything else.
    """
    address = parameters.get(name, "")
    allowed = ("https",) if options.address_scheme == "https" else ("https", "http")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in allowed and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        usable = False
    if not usable or not _ADDRESS.fullmatch(address):
        raise Refusal(
            contract.BAD_VALUE,
            f"{name} is not an absolute {' or '.join(allowed)} address",
        )
    return address


def _read_minutes(text: str) -> int:
    if not text:
        return contract.DEFAULT_TIMEOUT_MINUTES
    if not _MINUTES.fullmatch(text) or int(text) < 1:
        raise Refusal(contract.BAD_VALUE, "timeout is not a whole number of minutes")
    return int(text)


def _read_goods(text: str, options: Options) -> tuple[Goods, ...]:
    if not text:
        return ()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal(contract.BAD_VALUE, "goodsInfo is not JSON") from None
    if not isinstance(found, list):
        raise Refusal(contract.BAD_VALUE, "goodsInfo is not a JSON array")
    return tuple(_read_goods_line(line, options) for line in found)


def _read_goods_line(line: object, options: Options) -> Goods:
    if not isinstance(line, dict) or set(line) != {"goods_name", "quantity"}:
        raise Refusal(
            contract.BAD_VALUE,
            "goodsInfo holds something else than goods_name and quantity",
        )
    name, quantity = line["goods_name"], line["quantity"]
    if not isinstance(name, str) or not isinstance(quantity, str):
        raise Refusal(contract.BAD_VALUE, "goodsInfo must give goods_name and quantity as strings")
    if not name.strip() or (options.goods_characters == "plain" and not all(map(_is_plain, name))):
        raise Refusal(
            contract.BAD_VALUE,
            "goodsInfo has a goods_name that is empty or has special characters",
        )
    if not _QUANTITY.fullmatch(quantity) or int(quantity) < 1:
        raise Refusal(contract.BAD_VALUE, "goodsInfo has a quantity that is not a whole number")
    return Goods(_encodable(name), quantity)


def _is_plain(character: str) -> bool:
    """Letters, their marks and digits of any script, space, and `-` `.` `,` (unspecified behaviour
    15).
    """
    return character in " -.," or unicodedata.category(character)[0] in "LMN"
