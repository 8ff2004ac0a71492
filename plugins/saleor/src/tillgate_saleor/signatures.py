"""Signatures of a Saleor: over the raw body of a webhook, and in the tokens that its dashboard
passes to the App's page.

Its keys are stored with its installation. If a signature names an unknown key, the plugin fetches
the keys again, at most once a minute. So a Saleor may change its keys, and a forger cannot cause
constant fetches.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tillgate.shop import now
from tillgate_saleor.api import SaleorError, fetch_keys
from tillgate_saleor.models import Installation

_ALGORITHMS: Final = ["RS256"]
_FETCH_EVERY: Final = timedelta(minutes=1)
_LEEWAY_SECONDS: Final = 300
"""The tolerated difference between this machine's clock and the Saleor's."""
_GOOD_FOR: Final = timedelta(hours=24)
"""The plugin forgets a withdrawn key after this time at the latest."""


class BadSignature(Exception):
    """It was not signed by that Saleor; the message says why."""


def verify(installation: Installation, signature: str, body: bytes) -> None:
    """Raise `BadSignature` unless the Saleor of an installation has signed a body, as a detached
    JSON Web Signature (RFC 7797).
    """
    # A signature with its own payload would replace the body: any token of that Saleor would then
    # sign everything.
    header, _, rest = signature.partition(".")
    if not header or not rest.startswith("."):
        raise BadSignature("is not a detached signature")
    keys = _keys(installation, _kid(signature, is_encoded=False))
    try:
        jws.deserialize_compact(signature, keys, algorithms=_ALGORITHMS, payload=body)
    except (JoseError, ValueError, TypeError) as error:
        fault = BadSignature(f"does not fit the body ({type(error).__name__})")
    else:
        return
    raise fault


def read_token(installation: Installation, token: str) -> dict[str, Any]:
    """Return the claims of a token that the Saleor of an installation has given to the App's page;
    raise `BadSignature`.

    The token must be valid for this App and now. The check uses the machine's clock, and the
    Saleor's clock may differ: a fresh token from there must not count as one from the future.
    """
    keys = _keys(installation, _kid(token, is_encoded=True))
    rules = jwt.JWTClaimsRegistry(
        leeway=_LEEWAY_SECONDS,
        iss={"essential": True, "value": installation.api_url},
        app={"essential": True, "value": installation.app_id},
        type={"essential": True, "value": "thirdparty"},
        exp={"essential": True},
    )
    try:
        claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
        rules.validate(claims)
    except (JoseError, ValueError, TypeError) as error:
        fault = BadSignature(f"is no token for this App ({type(error).__name__})")
    else:
        if _is_well_formed(claims):
            return claims
        fault = BadSignature("has claims of another shape")
    raise fault


def _is_well_formed(claims: dict[str, Any]) -> bool:
    """Tell whether the claims are texts: a list passes the rules if one member does, and a
    permission would be found inside a text.
    """
    permissions = claims.get("permissions")
    texts = [claims[name] for name in ("iss", "app", "type")] + (
        permissions if isinstance(permissions, list) else [None]
    )
    return all(isinstance(one, str) for one in texts)


def _kid(signed: str, *, is_encoded: bool) -> str:
    """Return which key a signature names. `is_encoded` is whether it signs base64, as a token does,
    or bytes as they are (RFC 7797).
    """
    try:
        header = jws.extract_compact(signed.encode()).headers()
    except (JoseError, ValueError, TypeError) as error:
        fault = BadSignature(f"cannot be read ({type(error).__name__})")
    else:
        if header.get("b64", True) is not is_encoded:
            # The same keys sign both: a token's claims must not pass for a body, and a body must
            # not pass for a token.
            raise BadSignature("is of another kind")
        if isinstance(kid := header.get("kid"), str):
            return kid
        raise BadSignature("names no key")
    raise fault


def _keys(installation: Installation, kid: str) -> KeySet:
    """Return the keys of a Saleor with the one that a signature names among them; raise
    `BadSignature` when it has no such key.
    """
    fetched_at = installation.keys_fetched_at
    # the stored time may come from a clock that ran ahead
    age = abs(now() - fetched_at) if fetched_at else None
    is_old = age is None or age > _GOOD_FOR
    # they are older only if the fetch just failed
    may_fetch = age is None or _FETCH_EVERY < age <= _GOOD_FOR - _FETCH_EVERY
    if is_old or (may_fetch and kid not in _kids(installation.keys)):
        _fetch(installation)
    if kid not in _kids(installation.keys):
        raise BadSignature("names a key that this Saleor does not have")
    try:
        return KeySet.import_key_set(
            {"keys": [key for key in installation.keys["keys"] if _kid_of(key) == kid]},
        )
    except (JoseError, ValueError, TypeError, KeyError) as error:
        fault = BadSignature(f"names a key that cannot be used ({type(error).__name__})")
    raise fault


def _fetch(installation: Installation) -> None:
    """Fetch a Saleor's keys. If it is unreachable, the known keys stay valid until the next try, a
    minute later.
    """
    rows = Installation.objects.filter(
        pk=installation.pk,
        keys_fetched_at=installation.keys_fetched_at,
    )
    fetched_at = now()
    if not rows.update(keys_fetched_at=fetched_at):  # another request fetches them, or just did
        installation.refresh_from_db(fields=["keys", "keys_fetched_at"])
        return
    installation.keys_fetched_at = fetched_at
    try:
        installation.keys = fetch_keys(installation.origin)
    except SaleorError:
        installation.keys_fetched_at = fetched_at - _GOOD_FOR + _FETCH_EVERY  # too old
        installation.save(update_fields=["keys_fetched_at"])
        return
    installation.save(update_fields=["keys"])


def _kids(keys: dict[str, Any]) -> set[str]:
    return {kid for key in keys.get("keys", ()) if (kid := _kid_of(key))}


def _kid_of(key: object) -> str:
    kid = key.get("kid") if isinstance(key, dict) else None
    return kid if isinstance(kid, str) else ""
