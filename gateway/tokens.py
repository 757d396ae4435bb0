"""Signed tokens. The key's id in a token names the key that verifies its signature.

Keys are a JWK set (RFC 7517). They are secrets (``HS256``), or pairs of which a gateway needs only the public half:
Ed25519 (``EdDSA``, RFC 8037), P-256 (``ES256``) or RSA (``RS256``), as identity providers use them. The key decides the
algorithm, never the token, so a public key cannot be used as a secret. To rotate keys, add the new key, sign with it,
and remove the old key after its last token has expired.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from gateway.grants import ANYBODY, SEPARATOR, Grant
from gateway.refusal import Code, Refusal
from gateway.regions import check_visible, checked_patterns
from sequencing.errors import GamecastError, InvalidName, UsageError
from sequencing.names import RegionPatterns, check_connection_name

ALGORITHMS = ("HS256", "EdDSA")
"""The algorithms of keys that gamecast generates."""
ALGORITHM_OF = {"oct": "HS256", "OKP": "EdDSA", "EC": "ES256", "RSA": "RS256"}
"""By ``kty``, for a key without ``alg``."""
RSA_BITS_MIN = 2048
AUDIENCE = "gamecast"
SECRET_BYTES_MIN = 32
TOKEN_LETTERS_MAX = 8_192
LATEST_S = 253_402_300_799
"""The end of the year 9999: users who mean "never" give larger numbers than clocks support."""
NAME_ROOM_BYTES = 48
"""How many bytes of a name's length a subject leaves for the holder's suffix."""


PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey
PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Key:
    """One key: ``verifying`` verifies signatures; ``signing`` makes them, if it is known."""

    kid: str
    algorithm: str
    verifying: bytes | PublicKey
    signing: bytes | PrivateKey | None

    def __repr__(self) -> str:
        return f"Key({self.kid!r}, {self.algorithm!r})"


class Keys:
    """A set of keys, by id, the newest last."""

    def __init__(self, keys: Iterable[Key], *, may_be_empty: bool = False) -> None:
        """Raises `UsageError` if there is no key, unless ``may_be_empty``, or if two keys have the same id."""
        self.by_id: dict[str, Key] = {}
        for key in keys:
            if key.kid in self.by_id:
                raise UsageError(f"two keys have the id {key.kid!r}: give each its own id")
            self.by_id[key.kid] = key
        if not self.by_id and not may_be_empty:
            raise UsageError("the key set has no key: make one with `gamecast token keygen`")

    @classmethod
    def read(cls, file: Path, *, may_be_empty: bool = False) -> Keys:
        """Read a JWK set; raises `UsageError` with the file and the reason."""
        try:
            return cls.from_json(file.read_bytes(), may_be_empty=may_be_empty)
        except OSError as error:
            raise UsageError(f"cannot read the keys: {error}") from error
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error

    @classmethod
    def from_json(cls, text: bytes | str, *, may_be_empty: bool = False) -> Keys:
        """Read a JWK set; raises `UsageError`, which never quotes a key."""
        keys = (_read_key(number, jwk) for number, jwk in enumerate(_listed(text), start=1))
        return cls(keys, may_be_empty=may_be_empty)

    @classmethod
    def public(cls, text: bytes | str) -> Keys:
        """Read the public keys of a JWK set that an identity provider publishes, and skip keys for other uses.

        An empty set is valid: the provider has revoked all keys. Raises `UsageError` if the text is no set, or if no
        key in it is usable.
        """
        keys: dict[str, Key] = {}
        listed = _listed(text)
        for number, jwk in enumerate(listed, start=1):
            if isinstance(jwk, dict) and jwk.get("kty") != "oct" and jwk.get("use", "sig") == "sig":
                with suppress(UsageError):
                    key = _read_key(number, jwk)
                    keys[key.kid] = replace(key, signing=None)
        return cls(keys.values(), may_be_empty=not listed)

    @property
    def signing(self) -> list[str]:
        """The ids of keys that can sign: secrets, and pairs with their private halves."""
        return [kid for kid, key in self.by_id.items() if key.signing is not None]

    def signer(self, kid: str | None = None) -> Key:
        """Return the key with this id, or without an id the newest key that can sign; raises `UsageError`."""
        able = [key for key in self.by_id.values() if key.signing is not None and kid in (None, key.kid)]
        if not able:
            raise UsageError("none of the keys can sign" if kid is None else f"no key {kid!r} can sign")
        return able[-1]


class KeySource(Protocol):
    """Where a gateway gets its keys."""

    error: str | None
    """The reason why the previous keys are still used: the current ones cannot be read."""

    def keys(self) -> Keys:
        """Return the current keys."""


class KeyFile:
    """Keys that are read again when their file changes; if that fails, the previous keys stay valid."""

    LOOK_S = 1.0

    def __init__(self, file: Path) -> None:
        """Raises `UsageError`."""
        self._file = file
        self._keys = Keys.read(file)
        self._seen = self._state()
        self._looked_at = time.monotonic()
        self.error: str | None = None

    def keys(self) -> Keys:
        """Return the current keys."""
        if time.monotonic() - self._looked_at >= self.LOOK_S:
            if self._state() == self._seen:
                self._looked_at, self.error = time.monotonic(), None
            else:
                self.reload()
        return self._keys

    def reload(self) -> None:
        """Read the file now; ``error`` reports a failure."""
        self._looked_at, state = time.monotonic(), self._state()
        try:
            self._keys, self._seen, self.error = Keys.read(self._file, may_be_empty=True), state, None
        except UsageError as error:
            self.error = str(error)

    def _state(self) -> tuple[int, int, int]:
        try:
            status = self._file.stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_size, status.st_ino


def new_key(algorithm: str, kid: str | None = None) -> dict[str, str]:
    """Return a new key as a JWK, secret parts included."""
    kid = kid or f"{time.strftime('%Y-%m-%d', time.gmtime())}-{secrets.token_hex(3)}"
    if algorithm == "HS256":
        return {"kty": "oct", "kid": kid, "alg": "HS256", "use": "sig", "k": _encoded(secrets.token_bytes(32))}
    if algorithm == "EdDSA":
        pair = Ed25519PrivateKey.generate()
        public, private = pair.public_key().public_bytes_raw(), pair.private_bytes_raw()
        fields = {"kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "use": "sig"}
        return {**fields, "x": _encoded(public), "d": _encoded(private)}
    raise UsageError(f"a key's algorithm must be {' or '.join(ALGORITHMS)}, not {algorithm!r}")


def public_half(jwk: Mapping[str, str]) -> dict[str, str]:
    """Return the public half of an Ed25519 key; raises `UsageError` for a secret, which has none."""
    if jwk.get("kty") != "OKP":
        raise UsageError("a shared secret has no public half: use --algorithm EdDSA")
    return {name: value for name, value in jwk.items() if name != "d"}


def mint(
    key: Key,
    *,
    subject: str,
    read: Sequence[str] = (),
    write: Sequence[str] = (),
    lifetime_s: float = 3600.0,
    audience: str = AUDIENCE,
    once: bool = False,
    watch: bool = False,
    **limits: float | None,
) -> str:
    """Return a signed token; raises `UsageError` for claims that no gateway would accept.

    ``limits``: rate, burst, payload_bytes, sessions.
    """
    check_subject(subject, "sub")
    checked_patterns((*read, *write))
    if lifetime_s <= 0:
        raise UsageError("a token's lifetime must be more than 0 s")
    now = time.time()
    claims: dict[str, Any] = {"sub": subject, "aud": audience, "iat": int(now), "exp": int(now + lifetime_s)}
    claims |= {"jti": secrets.token_urlsafe(12), "read": list(read), "write": list(write)}
    claims |= {name: value for name, value in {"once": once, "watch": watch, **limits}.items() if value}
    _grant(claims)
    assert key.signing is not None
    return jwt.encode(claims, key.signing, algorithm=key.algorithm, headers={"kid": key.kid})


@dataclass(frozen=True, slots=True)
class Verified:
    """A valid token: what it grants; for a single-use token, also until when it must be remembered as used."""

    grant: Grant
    once_until_s: float | None


def verify(token: str, keys: Keys, audience: str = AUDIENCE, *, leeway_s: float = 0.0) -> Verified:
    """Return what a token grants; raises `Refusal` with the reason, which reveals nothing about keys.

    ``leeway_s``: how far the clock of the signer of the token may be ahead or behind.
    """
    if len(token) > TOKEN_LETTERS_MAX:
        raise _refused("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError) as error:
        raise _refused("the token cannot be read") from error
    kid = header.get("kid")
    key = keys.by_id.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise _refused("the token is signed with a key that this gateway does not know")
    if header.get("alg") != key.algorithm:
        raise _refused("the token's algorithm differs from that of its key")
    try:
        claims = jwt.decode(
            token,
            key.verifying,
            algorithms=[key.algorithm],
            audience=audience,
            leeway=leeway_s,
            options={"require": ["exp", "aud", "sub"], "strict_aud": False},
        )
    except jwt.ExpiredSignatureError as error:
        raise Refusal(Code.EXPIRED, "the token has expired: get a new one", status=401) from error
    except jwt.InvalidAudienceError as error:
        raise _refused(f"the token is not for this gateway, whose audience is {audience!r}") from error
    except jwt.InvalidSignatureError as error:
        raise _refused("the token's signature is wrong") from error
    except (jwt.InvalidTokenError, ValueError, TypeError) as error:
        raise _refused(f"this gateway does not accept the token: {error}") from error
    try:
        grant = _grant(claims, key.kid)
    except UsageError as error:
        raise _refused(f"the token's claims are invalid: {error}") from error
    if claims.get("once") and not grant.token_id:
        raise _refused("a single-use token needs an id (jti)")
    assert grant.expires_at_s is not None
    return Verified(grant, grant.expires_at_s + leeway_s if claims.get("once") else None)


def is_signed_by(token: str, keys: Keys) -> bool:
    """Return whether a token names one of the keys; this does not verify its signature."""
    try:
        return len(token) <= TOKEN_LETTERS_MAX and jwt.get_unverified_header(token).get("kid") in keys.by_id
    except (jwt.InvalidTokenError, ValueError, TypeError):
        return True  # no key makes it valid


def _grant(claims: Mapping[str, Any], key_id: str | None = None) -> Grant:
    subject = check_subject(claims.get("sub"), "sub")
    expires_at_s = claims["exp"]
    if isinstance(expires_at_s, bool) or not isinstance(expires_at_s, int | float):
        raise UsageError("exp must be a time in seconds")
    token_id = claims.get("jti")
    if token_id is not None and not (isinstance(token_id, str) and 0 < len(token_id) <= 200):
        raise UsageError("jti must be a string of at most 200 letters")
    return Grant(
        subject=subject,
        read=_patterns(claims, "read"),
        write=_patterns(claims, "write"),
        watch=claims.get("watch") is True,
        expires_at_s=float(min(expires_at_s, LATEST_S)),
        token_id=token_id,
        key_id=key_id,
        events_per_s=_limit(claims, "rate"),
        burst_events=_whole(claims, "burst"),
        payload_bytes_max=_whole(claims, "payload_bytes"),
        sessions_max=_whole(claims, "sessions"),
        claims=claims,
    )


def _patterns(claims: Mapping[str, Any], name: str) -> RegionPatterns:
    patterns = claims.get(name, [])
    if not isinstance(patterns, list) or len(patterns) > 256:
        raise UsageError(f"{name} must be a list of at most 256 region patterns")
    return checked_patterns(patterns)


def _limit(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise UsageError(f"{name} must be a number above 0")
    return float(value)


def _whole(claims: Mapping[str, Any], name: str) -> int | None:
    value = _limit(claims, name)
    if value is not None and value != int(value):
        raise UsageError(f"{name} must be a whole number")
    return None if value is None else int(value)


def check_subject(subject: Any, called: str) -> str:
    """Return a subject if a token may have it; raises `UsageError`. ``called``: its name in messages."""
    try:
        check_visible(check_connection_name(subject), "connection name")
    except InvalidName as error:
        raise UsageError(f"{called} names the holder's connections: {error}") from error
    if SEPARATOR in subject or subject == ANYBODY:
        raise UsageError(f"{called} must not contain {SEPARATOR!r}, nor be {ANYBODY!r}: {subject!r}")
    if "*" in subject:
        raise UsageError(f"{called} is one whole name and must not contain '*': {subject!r}")
    if len(subject.encode()) > 200 - NAME_ROOM_BYTES:
        raise UsageError(f"{called} must have at most {200 - NAME_ROOM_BYTES} bytes")
    return str(subject)


def _listed(text: bytes | str) -> list[Any]:
    """Return the entries of a JWK set."""
    try:
        document = orjson.loads(text)
    except ValueError:
        raise UsageError("this is not a JWK set: not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UsageError('this is not a JWK set: {"keys": […]}')
    return listed


def _read_key(number: int, jwk: Any) -> Key:
    where = f"key {number}"
    if not isinstance(jwk, dict) or not isinstance(kid := jwk.get("kid"), str) or not kid:
        raise UsageError(f'{where} has no id ("kid")')
    kind = jwk.get("kty"), jwk.get("alg", ALGORITHM_OF.get(str(jwk.get("kty"))))
    try:
        if kind == ("oct", "HS256"):
            secret = _decoded(jwk["k"])
            if len(secret) < SECRET_BYTES_MIN:
                raise UsageError(f"{where}, {kid!r}: a secret must have at least {SECRET_BYTES_MIN} bytes")
            return Key(kid, "HS256", secret, secret)
        if kind == ("OKP", "EdDSA") and jwk.get("crv") == "Ed25519":
            public = Ed25519PublicKey.from_public_bytes(_decoded(jwk["x"]))
            if "d" not in jwk:
                return Key(kid, "EdDSA", public, None)
            private = Ed25519PrivateKey.from_private_bytes(_decoded(jwk["d"]))
            if private.public_key().public_bytes_raw() != public.public_bytes_raw():
                raise UsageError(f"{where}, {kid!r}: its public and private halves do not match")
            return Key(kid, "EdDSA", public, private)
        if kind in (("EC", "ES256"), ("RSA", "RS256")):
            return _read_pair(kid, str(kind[1]), jwk, where)
    except (KeyError, TypeError, ValueError, AttributeError, jwt.PyJWKError, jwt.InvalidKeyError) as error:
        if isinstance(error, GamecastError):
            raise
        raise UsageError(f"{where}, {kid!r}, cannot be read") from None
    raise UsageError(
        f"{where}, {kid!r}, is none of oct with alg HS256, OKP Ed25519 with EdDSA, EC P-256 with ES256, RSA with RS256"
    )


def _read_pair(kid: str, algorithm: str, jwk: Mapping[str, Any], where: str) -> Key:
    parsed = jwt.PyJWK(dict(jwk), algorithm=algorithm).key
    signing = parsed if isinstance(parsed, EllipticCurvePrivateKey | RSAPrivateKey) else None
    public = signing.public_key() if signing is not None else parsed
    if isinstance(public, RSAPublicKey) and public.key_size < RSA_BITS_MIN:
        raise UsageError(f"{where}, {kid!r}: an RSA key must have at least {RSA_BITS_MIN} bits")
    if isinstance(public, EllipticCurvePublicKey) and public.curve.name != "secp256r1":
        raise UsageError(f"{where}, {kid!r}: the curve of ES256 must be P-256")
    return Key(kid, algorithm, public, signing)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refused(message: str) -> Refusal:
    return Refusal(Code.UNAUTHORIZED, message, status=401)
