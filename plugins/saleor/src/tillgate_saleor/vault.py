"""The tokens of Saleor in the database are encrypted: a backup does not reveal them (I11).

Keys change as Django's do: the newest encrypts, older ones still decrypt, and `manage.py
tillgate_saleor rotate` encrypts all of them again.
"""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings as project

from tillgate import ConfigurationError
from tillgate_saleor.conf import get_settings


def encrypt(secret: str) -> str:
    """Return a secret in its encrypted form for the database."""
    return _fernets().encrypt(secret.encode()).decode()


def decrypt(kept: str) -> str:
    """Return the secret of an encrypted text; raise `ConfigurationError` if no key fits any
    more.
    """
    try:
        return _fernets().decrypt(kept).decode()
    except InvalidToken:
        remedy = (
            "does not fit: put the older key behind the newest (SECRET_KEY_FALLBACKS), or "
            "let the Saleor install the App again"
        )
        fault = ConfigurationError("TILLGATE_SALEOR['ENCRYPTION_KEYS']", "***", remedy)
    raise fault


def rotate(kept: str) -> str:
    """Return the same secret encrypted with the newest key; raises as `decrypt` does."""
    return encrypt(decrypt(kept))


def _fernets() -> MultiFernet:
    keys = get_settings().encryption_keys or [
        str(key) for key in (project.SECRET_KEY, *project.SECRET_KEY_FALLBACKS)
    ]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    """Return a Fernet key, derived for this purpose alone: other uses of the same text do not
    accept it.
    """
    derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"tillgate_saleor tokens")
    return base64.urlsafe_b64encode(derivation.derive(key.encode()))
