"""``gamecast gateway``: the way in for browsers, other languages, and everybody over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import orjson

from adapters.gateway.settings import WhenDown
from adapters.urls import redacted
from cli.daemons import END_S_MAX, Stop, run_until_stopped
from cli.outfiles import writing
from gamecast.client.configuration import WhenBehind
from gamecast.client.networks import require_reachable
from gamecast.errors import UsageError
from sequencing.extras import require
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from adapters.gateway.guard import Guard
    from adapters.gateway.settings import GatewaySettings, HookName, HookSettings
    from adapters.gateway.tls import TlsFiles
    from adapters.gateway.tokens import KeySource

logger = logging.getLogger("gamecast.gateway")


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option(
    "--keys", help="Keys of the tokens that clients need: a file, see `gamecast token`, or a provider's https:// URL."
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    help="Address for metrics and the dashboard, open to everyone who can reach it. Without it, they are at the "
    "gateway's own, for tokens with `watch`.",
)
@click.option(
    "--admin-name",
    "admin_names",
    multiple=True,
    metavar="NAME",
    help="Host name by which operators may call the address of --admin, besides localhost, IP addresses and its HOST.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-For tells who asks.",
)
@click.option("--audience", default="gamecast", show_default=True, help="What tokens must be for.")
@click.option("--origin", "origins", multiple=True, help="Origin of pages that may use it from a browser; * is any.")
@click.option("--tls-certificate", type=click.Path(path_type=Path), help="PEM file, with the chain.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM file.")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    help="PEM file of authorities: each client needs a certificate of one of them, besides its token.",
)
@click.option("--audit", type=click.Path(path_type=Path), help="File to which the audit log is added; - is stderr.")
@click.option(
    "--when-behind",
    type=click.Choice(get_args(WhenBehind)),
    default="wait",
    show_default=True,
    help="What becomes of sessions that are too slow: they are waited for, get gaps, or are closed.",
)
@click.option(
    "--watch-url",
    help="URL of the control Redis by which dashboard and metrics look at the network, where the gateway's own user "
    "may not: that of the user `watcher`.",
)
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="What the network orders, see `gamecast manager`.",
)
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Change a limit; docs/gateway.md lists them."
)
@click.option(
    "--hook-connect",
    metavar="URL",
    help="URL of the game's backend, asked before a session or an event stream begins; see docs/gateway.md.",
)
@click.option("--hook-subscribe", metavar="URL", help="The same, asked before regions are read.")
@click.option("--hook-publish", metavar="URL", help="The same, asked before an event is published.")
@click.option(
    "--hook-secret",
    type=click.Path(path_type=Path),
    help="File with a secret that signs all calls of hooks. Make one with `openssl rand -hex 32`.",
)
@click.option(
    "--hooks-when-down",
    type=click.Choice(get_args(WhenDown)),
    default="deny",
    show_default=True,
    help="What happens to what a hook decides while the backend does not answer.",
)
@click.option("--trace", is_flag=True, help="Traces by OpenTelemetry, which its own environment variables set up.")
def gateway(
    url: str,
    *,
    host: str,
    port: int,
    origins: tuple[str, ...],
    admin: str | None,
    admin_names: tuple[str, ...],
    proxies: tuple[str, ...],
    when_behind: WhenBehind,
    limits: tuple[str, ...],
    keys: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    hook_connect: str | None,
    hook_subscribe: str | None,
    hook_publish: str | None,
    hook_secret: Path | None,
    hooks_when_down: WhenDown,
    **options: Any,
) -> None:
    """Serve a network by WebSocket and HTTP: see docs/gateway.md.

    Without --keys everybody is let in, so it listens at this machine only. Runs until SIGINT or SIGTERM. SIGHUP has it
    read its certificate, keys and authorities again; what is broken is logged, and the gateway keeps what it had. Says
    its URL on standard error when it listens.

    Exit status: 0 when it is stopped by SIGTERM, 130 by SIGINT, 2 for wrong use (a port that is taken, too), 3 if the
    network is not there, or stopping took too long and it was broken off.

    \b
    Example:
      gamecast gateway redis://127.0.0.1
    """
    require_reachable(url)
    require("gateway", "the gateway")
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    if client_ca is not None and tls_certificate is None:
        raise UsageError("--client-ca needs TLS: give --tls-certificate and --tls-key, too")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler])
    if keys is not None and "://" not in keys:
        _warn_of_readers(Path(keys))
    from adapters.gateway.settings import GatewaySettings, parse_address, parse_limits, parse_networks
    from adapters.gateway.tls import TlsFiles

    tls = None
    if tls_certificate is not None and tls_key is not None:
        tls = TlsFiles(tls_certificate, tls_key, client_ca)
        _warn_of_tls_key_readers(tls_key)
    settings = GatewaySettings(
        host=host,
        port=port,
        origins=origins,
        admin=parse_address(admin) if admin is not None else None,
        admin_names=tuple(name.lower() for name in admin_names),
        trusted_proxies=parse_networks(proxies),
        when_behind=when_behind,
        limits=parse_limits(limits),
        hooks=_hook_settings(
            {"connect": hook_connect, "subscribe": hook_subscribe, "publish": hook_publish},
            hook_secret,
            hooks_when_down,
        ),
    )
    end_s_max = settings.limits.drain_s + END_S_MAX
    run_until_stopped(lambda stop: _run(url, settings, stop, keys=keys, tls=tls, **options), end_s_max=end_s_max)


async def _run(
    url: str,
    settings: GatewaySettings,
    stop: Stop,
    *,
    keys: str | None,
    audience: str,
    tls: TlsFiles | None,
    audit: Path | None,
    ordering: Ordering,
    watch_url: str | None,
    trace: bool,
) -> None:
    from adapters.gateway.application import make_application
    from adapters.gateway.audit import AuditLog
    from adapters.gateway.guard import Guard
    from adapters.gateway.replaycache import RedisReplayCache
    from adapters.gateway.serving import collect_rarely, serving
    from gamecast.gateway import ClientAccess, extensions

    replay_cache = RedisReplayCache(url)
    guard = Guard(settings, replay_cache, keys=await _key_source(keys) if keys is not None else None, audience=audience)
    with ExitStack() as stack:
        application = make_application(
            ClientAccess(url, ordering=ordering),
            settings,
            guard=guard,
            replay_cache=replay_cache,
            audit=AuditLog(_audit_stream(audit, stack)),
            extensions=extensions(watch_url or url, trace=trace),
        )
        async with serving(application, tls) as where, _reloading(stop, guard, tls):
            click.echo(f"the gateway of {redacted(url)} listens at {where}", err=True)
            if not guard.asks_for_tokens:
                click.echo("it has no keys: it lets in everyone on this machine, and no one else", err=True)
            collect_rarely()
            await stop.wait()


@asynccontextmanager
async def _reloading(stop: Stop, guard: Guard, tls: TlsFiles | None) -> AsyncIterator[None]:
    """Reload at each SIGHUP while the context is open; a SIGHUP because the terminal was closed ends the gateway."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    loop, asked, had_terminal = asyncio.get_running_loop(), asyncio.Event(), _has_terminal()

    def hang_up() -> None:
        if had_terminal and not _has_terminal():
            stop.set()
        asked.set()

    async def reload() -> None:
        while True:
            await asked.wait()
            asked.clear()
            if not stop.is_set():
                await _reload(guard, tls)

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    reloading = asyncio.create_task(reload(), name="gamecast gateway reloading")
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        reloading.cancel()
        await asyncio.wait([reloading])


async def _reload(guard: Guard, tls: TlsFiles | None) -> None:
    reloaded = []
    if tls is not None:
        try:
            tls.reload()
            _warn_of_tls_key_readers(tls.key)
            reloaded.append("certificate")
        except UsageError as error:
            logger.error("reload-failed what=certificate: %s. The gateway keeps the one that it had", error)  # noqa: TRY400
    if guard.asks_for_tokens:
        await guard.reload_keys()
        if guard.keys_error is None:
            reloaded.append("keys")
        else:
            logger.error("reload-failed what=keys: %s. The gateway keeps those that it had", guard.keys_error)
    click.echo(f"reloaded after SIGHUP: {', '.join(reloaded) or 'nothing'}", err=True)


def _has_terminal() -> bool:
    """Return whether this process can be reached by a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _key_source(keys: str) -> KeySource:
    from adapters.gateway.keyurl import KeyUrl
    from adapters.gateway.tokens import KeyFile

    if "://" not in keys:
        return KeyFile(Path(keys))
    published = KeyUrl(keys)
    await published.refresh()
    if not published.has_come:
        click.echo(
            f"warning: the keys of {redacted(keys)} cannot be read: {published.error}. The gateway refuses tokens "
            "until they can, and asks again every 2 s",
            err=True,
        )
    return published


def _hook_settings(
    urls: Mapping[HookName, str | None], secret: Path | None, when_down: WhenDown
) -> HookSettings | None:
    from adapters.gateway.settings import HookSettings, read_hook_secret

    given = {name: url for name, url in urls.items() if url is not None}
    if not given:
        if secret is not None:
            raise UsageError(
                "--hook-secret signs calls of hooks: give --hook-connect, --hook-subscribe or --hook-publish"
            )
        return None
    if secret is None:
        raise UsageError(
            "hooks need --hook-secret FILE, by which the game's backend recognises the gateway: make the file with "
            "`openssl rand -hex 32 > hook.secret`"
        )
    settings = HookSettings(urls=given, secret=read_hook_secret(secret), when_down=when_down)
    if secret.stat().st_mode & 0o004:
        click.echo(f"warning: everybody on this machine can read {secret}, and sign calls with it: chmod 600", err=True)
    return settings


def _warn_of_readers(keys: Path) -> None:
    """Say so if others may read a file of keys with which they could sign."""
    from adapters.gateway.tokens import Keys

    if Keys.read(keys).signing and keys.stat().st_mode & 0o044:
        click.echo(f"warning: others on this machine can read {keys}, and sign with its keys: chmod 600", err=True)


def _warn_of_tls_key_readers(key: Path) -> None:
    """Say so if everybody on this machine may read the private key of the certificate."""
    if key.stat().st_mode & 0o004:
        click.echo(f"warning: everybody on this machine can read the TLS key {key}: chmod 640, or 600", err=True)


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON, a traceback with it."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {"at": self.formatTime(record), "logger": record.name, "level": record.levelname}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _audit_stream(audit: Path | None, stack: ExitStack) -> Any:
    if audit is None:
        return None
    if str(audit) == "-":
        return sys.stderr
    with writing(f"--audit {audit}"):
        return stack.enter_context(audit.open("a", encoding="utf-8"))
