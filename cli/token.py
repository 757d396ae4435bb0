"""``gamecast token``: make keys and the signed tokens that gateways require."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from cli.commands import Group
from gamecast.client.networks import require_reachable
from gamecast.errors import UsageError
from sequencing.errors import unwritable
from sequencing.extras import needed_by

FACTORS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group(cls=Group)
def token() -> None:
    """Make keys, and tokens for the gateway's clients.

    \b
    Example:
      gamecast token keygen --out keys.json
      gamecast gateway redis://127.0.0.1 --host 0.0.0.0 --keys keys.json
      gamecast token mint --keys keys.json --subject alice --read 'arena/*' --write 'arena/*' --expires 1h
    """


@token.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Key file. The new key is added to it. Keep it secret.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["EdDSA", "HS256"]),
    default="EdDSA",
    show_default=True,
    help="EdDSA: an Ed25519 pair, of which gateways need only the public half. HS256: a shared secret.",
)
@click.option("--kid", help="ID of the key.  [default: today's date and some letters]")
@click.option(
    "--public", type=click.Path(dir_okay=False, path_type=Path), help="Also write the public halves of all keys here."
)
def keygen(*, out: Path, algorithm: str, kid: str | None, public: Path | None) -> None:
    """Make a key, and print its ID. The newest key signs new tokens.

    Tokens of older keys stay valid until you remove their keys from the file. Running gateways see a change of the file
    within a second.

    Exit status: 0, or 2 for wrong use.
    """
    with needed_by("`gamecast token`"):
        from gateway.tokens import Keys, new_key, public_half

    if public is not None and public.resolve() == out.resolve():
        raise UsageError(f"--public {public} is the file of --out, and would replace the private keys: name another")
    listed: list[dict[str, str]] = []
    if out.exists():
        Keys.read(out)
        listed = orjson.loads(out.read_bytes())["keys"]
    listed.append(new_key(algorithm, kid))
    text = key_document(listed)
    Keys.from_json(text)
    halves = key_document([public_half(each) for each in listed]) if public is not None else b""
    write_keys(out, text, 0o600)
    if public is not None:
        write_keys(public, halves, 0o644)
    click.echo(listed[-1]["kid"])


@token.command()
@click.option("--keys", "file", type=click.Path(path_type=Path), required=True, help="From `gamecast token keygen`.")
@click.option("--kid", help="Sign with this key.  [default: the newest]")
@click.option("--subject", required=True, help="Name of the holder, under which its sessions publish.")
@click.option("--read", multiple=True, metavar="PATTERN", help="Regions to read; * does not cross a slash, ** does.")
@click.option("--write", multiple=True, metavar="PATTERN", help="Regions to write.")
@click.option("--expires", default="1h", show_default=True, help="Lifetime: 90s, 15m, 1h, 30d.")
@click.option("--audience", default="gamecast", show_default=True, help="Audience of the gateways that accept it.")
@click.option("--once", is_flag=True, help="Valid for a single connection or request.")
@click.option("--watch", is_flag=True, help="Let its holder see metrics and the dashboard.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Limit of events per second.")
@click.option("--burst", type=click.IntRange(min=1), help="Limit of events at once.")
@click.option("--payload-bytes", type=click.IntRange(min=1), help="Limit of an event's payload, in bytes.")
@click.option("--sessions", type=click.IntRange(min=1), help="Limit of sessions at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: token, kid, claims.")
def mint(*, file: Path, kid: str | None, expires: str, as_json: bool, **claims: Any) -> None:
    """Print a token.

    Exit status: 0, or 2 for wrong use.
    """
    with needed_by("`gamecast token`"):
        import jwt

        from gateway import tokens

    key = tokens.Keys.read(file).signer(kid)
    made = tokens.mint(key, lifetime_s=_seconds(expires), **claims)
    if as_json:
        told = {"token": made, "kid": key.kid, "claims": jwt.decode(made, options={"verify_signature": False})}
        click.echo(orjson.dumps(told))
    else:
        click.echo(made)


_WHOSE = (
    click.argument("url", envvar="GAMECAST_URL"),
    click.option("--subject", help="All tokens of this holder: its full name, not a pattern."),
    click.option("--token-id", help="The token with this ID (`jti`), as the audit log shows it."),
)


def _whose(command: Callable[..., None]) -> Callable[..., None]:
    for add in reversed(_WHOSE):
        command = add(command)
    return command


@token.command()
@_whose
@click.option("--for", "for_", default="1d", show_default=True, help="How long to refuse them: 90s, 15m, 1h, 30d.")
def revoke(*, url: str, subject: str | None, token_id: str | None, for_: str) -> None:
    """Refuse tokens before they expire, at all gateways of a network, and close their sessions and event streams.

    It takes effect within seconds. To refuse all tokens of a key, remove the key from the gateways' key file.

    Exit status: 0, 2 for wrong use, 3 if the network is unavailable.

    \b
    Example:
      gamecast token revoke redis://127.0.0.1 --subject mallory --for 7d
    """
    _revoke(url, subject, token_id, _seconds(for_, "--for"))


@token.command()
@_whose
def disconnect(*, url: str, subject: str | None, token_id: str | None) -> None:
    """Close the sessions and event streams of tokens. Clients with a valid token may reconnect.

    Exit status: 0, 2 for wrong use, 3 if the network is unavailable.

    \b
    Example:
      gamecast token disconnect redis://127.0.0.1 --subject alice
    """
    _revoke(url, subject, token_id, 0)


@token.command()
@_whose
def pardon(*, url: str, subject: str | None, token_id: str | None) -> None:
    """Accept revoked tokens again.

    Exit status: 0, 2 for wrong use, 3 if the network is unavailable.

    \b
    Example:
      gamecast token pardon redis://127.0.0.1 --subject mallory
    """
    _revoke(url, subject, token_id, None)


def _revoke(url: str, subject: str | None, token_id: str | None, for_s: float | None) -> None:
    if (subject is None) == (token_id is None):
        raise UsageError("name the tokens: give either --subject or --token-id")
    require_reachable(url)
    with needed_by("`gamecast token`"):
        from gateway import revocations
        from gateway.replaycache import RedisReplayCache
        from gateway.tokens import check_subject

    if subject is not None and for_s is not None:
        check_subject(subject, "--subject")

    async def work() -> None:
        replay_cache = RedisReplayCache(url)
        try:
            kind: revocations.Kind = "subject" if subject is not None else "token_id"
            value = subject or token_id or ""
            if for_s is None:
                await revocations.pardon(replay_cache, kind, value)
            else:
                await revocations.revoke(replay_cache, kind, value, for_s=for_s)
        finally:
            await replay_cache.close()

    asyncio.run(work())


def _seconds(text: str, option: str = "--expires") -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise UsageError(f"{option} takes a number and s, m, h or d, such as 15m, not {text!r}")
    return int(match[1]) * FACTORS[match[2]]


def key_document(keys: list[dict[str, str]]) -> bytes:
    """Return the content of a key file."""
    return orjson.dumps({"keys": keys}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_keys(file: Path, text: bytes, mode: int) -> None:
    """Replace a file atomically, so that a gateway never reads half of it."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(text)
            beside.replace(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(f"{file} cannot be written", error) from error
