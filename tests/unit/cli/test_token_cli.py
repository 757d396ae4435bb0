"""`gamecast token`: what it makes, what it refuses, and that no secret goes where it should not."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.token import token
from gateway.refusal import Refusal
from gateway.tokens import Keys, verify
from sequencing.errors import UsageError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(token, [str(argument) for argument in arguments])


def made(*arguments: object) -> str:
    """Run what is to succeed, and return what it prints."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout.removesuffix("\n")


def refused(*arguments: object) -> str:
    """Run what is to be refused, and return what it says."""
    result = run(*arguments)
    if isinstance(result.exception, UsageError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    made("keygen", "--out", file, "--kid", "first")
    return file


def jwks(file: Path) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = orjson.loads(file.read_bytes())["keys"]
    return listed


def secrets_of(file: Path) -> list[str]:
    """Return what is secret of each key."""
    return [jwk["d"] if jwk["kty"] == "OKP" else jwk["k"] for jwk in jwks(file)]


def test_a_minted_token_grants_what_was_asked_for_and_nothing_else(keys: Path) -> None:
    grants = ["--read", "arena/*", "--read", "lobby", "--write", "arena/7", "--rate", 5, "--burst", 9]
    bounds = ["--payload-bytes", 100, "--sessions", 2, "--expires", "15m"]
    verified = verify(made("mint", "--keys", keys, "--subject", "alice", *grants, *bounds), Keys.read(keys))
    grant = verified.grant
    assert (grant.subject, grant.watch, verified.once_until_s) == ("alice", False, None)
    assert [region in grant.read for region in ("arena/1", "lobby", "arena", "other")] == [True, True, False, False]
    assert [region in grant.write for region in ("arena/7", "arena/1")] == [True, False]
    assert (grant.events_per_s, grant.burst_events, grant.payload_bytes_max, grant.sessions_max) == (5.0, 9, 100, 2)


@pytest.mark.parametrize(("expires", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3600), ("30d", 2_592_000)])
def test_a_token_lives_as_long_as_was_said(keys: Path, expires: str, seconds: int) -> None:
    told = orjson.loads(made("mint", "--keys", keys, "--subject", "alice", "--expires", expires, "--json"))
    claims: dict[str, Any] = told["claims"]
    assert (told["kid"], claims["sub"], claims["aud"]) == ("first", "alice", "gamecast")
    assert claims["exp"] - claims["iat"] == seconds
    assert verify(told["token"], Keys.read(keys)).grant.expires_at_s == claims["exp"]


def test_a_token_for_single_use_and_for_watching_says_so(keys: Path) -> None:
    verified = verify(made("mint", "--keys", keys, "--subject", "eve", "--once", "--watch"), Keys.read(keys))
    assert verified.grant.watch
    assert verified.grant.token_id
    assert verified.once_until_s is not None


def test_a_token_of_another_audience_is_for_other_gateways(keys: Path) -> None:
    minted = made("mint", "--keys", keys, "--subject", "alice", "--audience", "staging")
    assert verify(minted, Keys.read(keys), audience="staging").grant.subject == "alice"
    with pytest.raises(Refusal, match="not for this gateway"):
        verify(minted, Keys.read(keys))


@pytest.mark.parametrize("algorithm", ["EdDSA", "HS256"])
def test_keys_rotate_without_a_break(tmp_path: Path, algorithm: str) -> None:
    file = tmp_path / "keys.json"
    assert made("keygen", "--out", file, "--algorithm", algorithm, "--kid", "old") == "old"
    before = made("mint", "--keys", file, "--subject", "alice")
    made("keygen", "--out", file, "--algorithm", algorithm, "--kid", "new")
    after = orjson.loads(made("mint", "--keys", file, "--subject", "alice", "--json"))
    assert after["kid"] == "new", "the newest signs"
    assert [verify(each, Keys.read(file)).grant.subject for each in (before, after["token"])] == ["alice"] * 2
    chosen = orjson.loads(made("mint", "--keys", file, "--subject", "alice", "--kid", "old", "--json"))
    assert chosen["kid"] == "old"
    file.write_bytes(orjson.dumps({"keys": jwks(file)[1:]}))
    verify(after["token"], Keys.read(file))
    with pytest.raises(Refusal, match="does not know"):
        verify(before, Keys.read(file))


def test_gateways_need_the_public_halves_only_and_these_cannot_sign(tmp_path: Path, keys: Path) -> None:
    public = tmp_path / "public.json"
    made("keygen", "--out", keys, "--public", public)
    assert len(jwks(public)) == 2
    assert not any("d" in jwk for jwk in jwks(public))
    assert verify(made("mint", "--keys", keys, "--subject", "alice"), Keys.read(public)).grant.subject == "alice"
    assert "none of the keys can sign" in refused("mint", "--keys", public, "--subject", "alice")


@pytest.mark.parametrize("algorithm", ["EdDSA", "HS256"])
def test_secrets_are_in_the_file_of_keys_alone_which_others_cannot_read(tmp_path: Path, algorithm: str) -> None:
    file = tmp_path / "keys.json"
    told = [run("keygen", "--out", file, "--algorithm", algorithm, "--kid", "k")]
    file.chmod(0o644)
    told.append(run("keygen", "--out", file, "--algorithm", algorithm))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it is closed again"
    told += [run("mint", "--keys", file, "--subject", "alice", *more) for more in ((), ("--json",))]
    told.append(run("mint", "--keys", file, "--subject", "alice", "--kid", "nobody"))
    told.append(run("keygen", "--out", file, "--algorithm", algorithm, "--kid", "k"))
    said = "".join(f"{each.output}{each.stderr}{each.exception}" for each in told)
    assert len(secrets_of(file)) == 2
    assert not any(secret in said for secret in secrets_of(file))
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"], "nothing is left beside it"


def test_a_file_of_keys_that_is_broken_is_named_and_not_quoted(keys: Path) -> None:
    [jwk] = jwks(keys)
    secret = jwk["d"]
    for text in (f'{{"keys": [{{"d": "{secret}"', orjson.dumps({"keys": [jwk | {"d": secret[:-3] + "AAA"}]}).decode()):
        keys.write_text(text)
        for words in (["mint", "--keys", keys, "--subject", "alice"], ["keygen", "--out", keys]):
            message = refused(*words)
            assert message.startswith(f"{keys}: ")
            assert secret[:-3] not in message
        assert keys.read_text() == text, "what cannot be read is not replaced"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--subject", "alice", "--expires", "1 h"],
            "--expires takes a number and s, m, h or d, such as 15m, not '1 h'",
        ),
        (["--subject", "alice", "--expires", "-5m"], "--expires takes a number"),
        (["--subject", "alice", "--expires", "0s"], "more than 0 s"),
        (["--subject", "alice~phone"], "sub must not contain '~'"),
        (["--subject", ""], "sub names the holder's connections"),
        (["--subject", "alice", "--kid", "nobody"], "no key 'nobody' can sign"),
        (["--subject", "alice", "--rate", "0"], "--rate"),
        (["--subject", "alice", "--sessions", "none"], "--sessions"),
        ([], "--subject"),
    ],
)
def test_what_no_gateway_would_take_is_not_minted(keys: Path, words: list[str], message: str) -> None:
    assert message in refused("mint", "--keys", keys, *words)


def test_keys_that_are_not_there_and_folders_that_are_not_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "keys.json"
    assert str(missing) in refused("mint", "--keys", missing, "--subject", "alice")
    assert f"{missing} cannot be written: No such" in refused("keygen", "--out", missing)


def test_a_key_that_is_refused_leaves_the_file_as_it_was(tmp_path: Path, keys: Path) -> None:
    before = keys.read_bytes()
    assert "two keys have the id 'first'" in refused("keygen", "--out", keys, "--kid", "first")
    assert "would replace the private keys" in refused("keygen", "--out", keys, "--public", keys)
    public = tmp_path / "public.json"
    secret = ["--algorithm", "HS256", "--public", public]
    assert "a shared secret has no public half" in refused("keygen", "--out", keys, *secret)
    assert keys.read_bytes() == before
    assert not public.exists()
