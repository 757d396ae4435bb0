"""Tokens: what is let in, and what each forgery is told."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from gateway.keyurl import KeyUrl
from gateway.refusal import Code, Refusal
from gateway.tokens import KeyFile, Keys, mint, new_key, public_half, verify
from sequencing.errors import UsageError


def keys_of(*jwks: dict[str, str]) -> Keys:
    return Keys.from_json(orjson.dumps({"keys": list(jwks)}))


SECRET, PAIR, OTHER = new_key("HS256", "secret"), new_key("EdDSA", "pair"), new_key("EdDSA", "other")
KEYS = keys_of(SECRET, PAIR)
SIGNING: Any = KEYS.by_id["secret"].signing


def forged(claims: dict[str, Any] | None = None, *, key: Any = SIGNING, alg: str = "HS256", **header: Any) -> str:
    """Return a token signed with the shared secret, with other claims than `mint` would make."""
    told = {"sub": "alice", "aud": "gamecast", "exp": int(time.time()) + 60, "read": ["**"]} | (claims or {})
    told = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(told, key, algorithm=alg, headers={"kid": "secret"} | header)


def refusal(token: str, keys: Keys = KEYS) -> Refusal:
    with pytest.raises(Refusal) as raised:
        verify(token, keys)
    return raised.value


@pytest.mark.parametrize("kid", ["secret", "pair"])
def test_a_token_grants_what_it_was_minted_for(kid: str) -> None:
    token = mint(KEYS.signer(kid), subject="alice", read=["arena/*"], write=["arena/1"], rate=5, watch=True, sessions=2)
    grant = verify(token, KEYS).grant
    assert grant.subject == "alice"
    assert "arena/7" in grant.read
    assert "arena/7" not in grant.write
    assert "arena/1" in grant.write
    assert (grant.events_per_s, grant.sessions_max, grant.watch) == (5.0, 2, True)
    assert grant.expires_at_s is not None
    assert grant.token_id is not None


def test_the_newest_key_signs_and_older_tokens_stay_good_until_their_key_is_taken_out() -> None:
    old = mint(keys_of(PAIR).signer(), subject="alice")
    rotated = keys_of(PAIR, OTHER)
    assert jwt.get_unverified_header(mint(rotated.signer(), subject="alice"))["kid"] == "other"
    assert verify(old, rotated).grant.subject == "alice"
    assert "does not know" in refusal(old, keys_of(OTHER)).message


def test_a_gateway_needs_only_the_public_half(tmp_path: Path) -> None:
    token = mint(KEYS.signer("pair"), subject="alice")
    public = keys_of(public_half(PAIR))
    assert verify(token, public).grant.subject == "alice"
    with pytest.raises(UsageError, match="none of the keys can sign"):
        public.signer()
    with pytest.raises(UsageError, match="no public half"):
        public_half(SECRET)


def test_keys_are_read_again_when_their_file_changes_and_count_on_when_it_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(orjson.dumps({"keys": [PAIR]}))
    keys = KeyFile(file)
    keys.LOOK_S = 0.0
    file.write_bytes(orjson.dumps({"keys": [PAIR, OTHER]}))
    assert keys.keys().by_id.keys() == {"pair", "other"}
    file.write_text("{")
    assert keys.keys().by_id.keys() == {"pair", "other"}
    assert keys.error is not None
    file.write_bytes(orjson.dumps({"keys": [OTHER]}))
    assert keys.keys().by_id.keys() == {"other"}


def test_an_expired_token_is_told_so() -> None:
    assert refusal(forged({"exp": int(time.time()) - 30})).code is Code.EXPIRED


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "another"}, "is not for this gateway"),
        ({"aud": None}, "aud"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"sub": "a~b"}, "must not contain '~'"),
        ({"sub": "anybody"}, "nor be 'anybody'"),
        ({"sub": "x" * 190}, "at most 152 bytes"),
        ({"sub": "a\nb"}, "control characters"),
        ({"nbf": int(time.time()) + 86_400}, "not yet valid"),
        ({"read": "**"}, "read must be a list"),
        ({"read": ["a/../b"]}, "not a valid region pattern"),
        ({"read": ["a?"]}, "not a valid region pattern"),
        ({"write": [1]}, "a region pattern must be a string"),
        ({"rate": -1}, "rate must be a number above 0"),
        ({"rate": True}, "rate must be a number above 0"),
        ({"sessions": 1.5}, "sessions must be a whole number"),
        ({"once": True}, "needs an id"),
    ],
)
def test_claims_that_make_no_sense_are_refused(claims: dict[str, Any], said: str) -> None:
    found = refusal(forged(claims))
    assert (found.code, found.status) == (Code.UNAUTHORIZED, 401)
    assert said in found.message


def new_pair(algorithm: str) -> Any:
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(65537, 2048)


def public_jwk(pair: Any, algorithm: str, kid: str) -> dict[str, Any]:
    """As providers have it, who need not name the algorithm."""
    kind = RSAAlgorithm if algorithm.startswith("RS") else ECAlgorithm
    jwk: dict[str, Any] = json.loads(kind.to_jwk(pair.public_key()))
    return jwk | {"kid": kid, "use": "sig"}


def test_a_changed_token_is_refused() -> None:
    header, claims, signature = mint(KEYS.signer("pair"), subject="alice").split(".")
    told = json.loads(base64.urlsafe_b64decode(claims + "=="))
    other = base64.urlsafe_b64encode(json.dumps(told | {"sub": "root"}).encode()).rstrip(b"=").decode()
    assert "signature is wrong" in refusal(f"{header}.{other}.{signature}").message


def test_a_public_key_is_never_taken_for_a_secret() -> None:
    public = KEYS.by_id["pair"].verifying
    assert isinstance(public, Ed25519PublicKey)
    for secret in (
        public.public_bytes_raw(),
        base64.urlsafe_b64encode(public.public_bytes_raw()).rstrip(b"="),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ):
        header, claims, _ = forged(kid="pair").split(".")
        mac = hmac.digest(secret, f"{header}.{claims}".encode(), "sha256")
        token = f"{header}.{claims}." + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
        assert "algorithm differs from that of its key" in refusal(token).message


@pytest.mark.parametrize("alg", ["none", "None", "HS512", "RS256", None, 7])
def test_a_token_does_not_choose_its_algorithm(alg: Any) -> None:
    header, claims, _ = forged().split(".")
    told = json.loads(base64.urlsafe_b64decode(header + "==")) | {"alg": alg}
    changed = base64.urlsafe_b64encode(json.dumps(told).encode()).rstrip(b"=").decode()
    for signature in ("", "AAAA"):
        assert refusal(f"{changed}.{claims}.{signature}").code is Code.UNAUTHORIZED
    assert refusal(forged(key=bytes(64), alg="HS512")).message == "the token's algorithm differs from that of its key"


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "." * 50, "é.é.é", "x" * 9000, "{}.{}.{}"])
def test_what_is_no_token_is_refused(token: str) -> None:
    assert refusal(token).code is Code.UNAUTHORIZED


@pytest.mark.parametrize("kid", [None, "", "../keys", "nobody", 7, ["secret"]])
def test_a_token_names_a_key_that_is_known(kid: Any) -> None:
    header, claims, signature = forged().split(".")
    told = json.loads(base64.urlsafe_b64decode(header + "==")) | {"kid": kid}
    changed = base64.urlsafe_b64encode(json.dumps(told).encode()).rstrip(b"=").decode()
    assert refusal(f"{changed}.{claims}.{signature}").code is Code.UNAUTHORIZED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JWK set"),
        (b'{"keys": []}', "no key"),
        (b'{"keys": [{"kty": "oct"}]}', "has no id"),
        (b'{"keys": [{"kid": "a", "kty": "oct", "alg": "HS256", "k": "c2hvcnQ"}]}', "at least 32 bytes"),
        (b'{"keys": [{"kid": "a", "kty": "oct", "alg": "none", "k": "c2hvcnQ"}]}', "is none of"),
        (b'{"keys": [{"kid": "a", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": "AA"}]}', "cannot be read"),
        (orjson.dumps({"keys": [PAIR, PAIR]}), "two keys have the id"),
        (orjson.dumps({"keys": [PAIR | {"x": OTHER["x"]}]}), "do not match"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused_without_a_word_of_its_secrets(text: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        Keys.from_json(text)
    assert PAIR["d"] not in str(raised.value)
    assert "c2hvcnQ" not in str(raised.value)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("says_it", [True, False])
def test_pairs_of_identity_providers_verify_and_nothing_else_does(algorithm: str, says_it: bool) -> None:
    pair, stranger = new_pair(algorithm), new_pair(algorithm)
    jwk = public_jwk(pair, algorithm, "idp") | ({"alg": algorithm} if says_it else {})
    keys = Keys.from_json(orjson.dumps({"keys": [jwk]}))
    claims = {"sub": "alice", "aud": "gamecast", "exp": time.time() + 60}
    good = jwt.encode(claims, pair, algorithm=algorithm, headers={"kid": "idp"})
    assert verify(good, keys).grant.subject == "alice"
    forged = jwt.encode(claims, stranger, algorithm=algorithm, headers={"kid": "idp"})
    with pytest.raises(Refusal, match="signature is wrong"):
        verify(forged, keys)
    header, body, _ = jwt.encode(claims, b"x" * 32, algorithm="HS256", headers={"kid": "idp"}).split(".")
    public = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mac = base64.urlsafe_b64encode(hmac.digest(public, f"{header}.{body}".encode(), "sha256")).rstrip(b"=").decode()
    with pytest.raises(Refusal, match="algorithm differs from that of its key"):
        verify(f"{header}.{body}.{mac}", keys)


def test_weak_pairs_and_other_curves_are_refused() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    p384 = ec.generate_private_key(ec.SECP384R1())
    for jwk in (public_jwk(weak, "RS256", "a"), public_jwk(p384, "ES384", "a") | {"alg": "ES256"}):
        with pytest.raises(UsageError, match=r"at least 2048 bits|cannot be read|P-256"):
            Keys.from_json(orjson.dumps({"keys": [jwk]}))


def test_of_a_published_set_what_is_for_something_else_is_left_out() -> None:
    good = public_jwk(new_pair("ES256"), "ES256", "good")
    others = [
        {"kty": "oct", "kid": "secret", "alg": "HS256", "k": "A" * 64},
        public_jwk(new_pair("RS256"), "RS256", "encrypts") | {"use": "enc"},
        {"kty": "EC", "kid": "odd"},
        7,
    ]
    assert Keys.public(orjson.dumps({"keys": [*others, good]})).by_id.keys() == {"good"}
    assert Keys.public(orjson.dumps({"keys": [PAIR]})).signing == []
    with pytest.raises(UsageError, match="no key"):
        Keys.public(orjson.dumps({"keys": others}))


@pytest.mark.parametrize("url", ["http://id.example/jwks", "file:///etc/passwd", "ftp://x", "http://127.0.0.1.evil/x"])
def test_published_keys_come_by_https(url: str) -> None:
    with pytest.raises(UsageError, match="must begin with https"):
        KeyUrl(url)


def test_a_key_does_not_show_its_secret() -> None:
    assert repr(KEYS.by_id["secret"]) == "Key('secret', 'HS256')"


@pytest.mark.parametrize("exp", [9 * 10**18, 10**400, 9e18])
async def test_a_token_that_is_to_hold_for_ever_holds_for_longer_than_anybody_waits(exp: float) -> None:
    grant = verify(forged({"exp": exp}), KEYS).grant
    async with asyncio.timeout(grant.seconds_left(0.0)):
        await asyncio.sleep(0)
