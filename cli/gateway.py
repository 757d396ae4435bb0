"""``gamecast gateway``: access for browsers, other languages, and every HTTP client."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from adapters.urls import redacted
from cli.daemons import END_S_MAX, Stop, run_until_stopped
from cli.logs import LogFormat, daemon_logger, log_as, log_option
from cli.outfiles import writing
from gamecast.client.configuration import WhenBehind
from gamecast.client.networks import require_reachable
from gamecast.errors import UsageError
from gateway.settings import WhenDown
from sequencing.extras import require
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from gateway.guard import Guard
    from gateway.settings import GatewaySettings, HookName, HookSettings
    from gateway.tls import TlsFiles
    from gateway.tokens import KeySource

logger = daemon_logger("gateway")


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen at; 0 chooses a free one.",
)
@click.option(
    "--keys", help="Keys of the tokens that clients need: a file, see `gamecast token`, or a provider's https:// URL."
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    help="Separate address for metrics and the dashboard, open to everyone who can reach it. By default they are at "
    "the gateway's own address, for tokens with `watch`.",
)
@click.option(
    "--admin-name",
    "admin_names",
    multiple=True,
    metavar="NAME",
    help="Host name that requests to the address of --admin may use, besides localhost, IP addresses and its HOST.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of proxies whose X-Forwarded-For header names the client.",
)
@click.option("--audience", default="gamecast", show_default=True, help="Audience that tokens must name.")
@click.option("--origin", "origins", multiple=True, help="Origin of web pages that may use the gateway; * allows any.")
@click.option("--tls-certificate", type=click.Path(path_type=Path), help="PEM file of the certificate and its chain.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM file of the certificate's private key.")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    help="PEM file of certificate authorities. Each client then needs a certificate from one of them, besides its "
    "token.",
)
@click.option("--audit", type=click.Path(path_type=Path), help="File to append the audit log to; - is standard error.")
@click.option(
    "--when-behind",
    type=click.Choice(get_args(WhenBehind)),
    default="wait",
    show_default=True,
    help="What to do with a session that is too slow: wait for it, skip events with a gap, or close it.",
)
@click.option(
    "--watch-url",
    help="URL of the control Redis for dashboard and metrics, with the user `watcher`. Set it if the gateway's own "
    "user may not inspect the network.",
)
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="The order that plans guarantee, see `gamecast manager`.",
)
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Change a limit; docs/gateway.md lists them."
)
@click.option(
    "--hook-connect",
    metavar="URL",
    help="URL of the game's backend, called before a session or an event stream begins; see docs/gateway.md.",
)
@click.option("--hook-subscribe", metavar="URL", help="The same, called before a client reads regions.")
@click.option("--hook-publish", metavar="URL", help="The same, called before a client publishes an event.")
@click.option(
    "--hook-secret",
    type=click.Path(path_type=Path),
    help="File with the secret that signs all hook calls. Make one with `openssl rand -hex 32`.",
)
@click.option(
    "--hooks-when-down",
    type=click.Choice(get_args(WhenDown)),
    default="deny",
    show_default=True,
    help="How to decide requests while the backend does not answer a hook.",
)
@click.option("--trace", is_flag=True, help="Send OpenTelemetry traces. Its own environment variables configure it.")
@log_option
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
    log_format: LogFormat,
    **options: Any,
) -> None:
    """Serve a network by WebSocket and HTTP: see docs/gateway.md.

    Without --keys the gateway accepts every client, so it listens at this machine only. It prints its URL to standard
    error when it listens, and runs until SIGINT or SIGTERM. On SIGHUP it reloads its certificate, keys and authorities.
    If one is broken, the gateway logs an error and keeps the previous one.

    Exit status: 0 when SIGTERM stopped it, 130 for SIGINT, 2 for wrong use (including a port in use), 3 if the network
    is unavailable or stopping timed out.

    \b
    Example:
      gamecast gateway redis://127.0.0.1
    """
    require_reachable(url)
    require("gateway", "the gateway")
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    if client_ca is not None and tls_certificate is None:
        raise UsageError("--client-ca needs TLS: also give --tls-certificate and --tls-key")
    log_as(log_format)
    if keys is not None and "://" not in keys:
        _warn_of_readers(Path(keys))
    from gateway.settings import GatewaySettings, parse_address, parse_limits, parse_networks
    from gateway.tls import TlsFiles

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
    from gateway.access import ClientAccess
    from gateway.application import make_application
    from gateway.audit import AuditLog
    from gateway.guard import Guard
    from gateway.local import extensions
    from gateway.replaycache import RedisReplayCache
    from gateway.serving import collect_rarely, serving

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
            logger.info("the gateway of %s listens at %s", redacted(url), where)
            if not guard.asks_for_tokens:
                logger.warning("it has no keys: it accepts every client on this machine, and no other")
            collect_rarely()
            await stop.wait()


@asynccontextmanager
async def _reloading(stop: Stop, guard: Guard, tls: TlsFiles | None) -> AsyncIterator[None]:
    """Reload at each SIGHUP while the context is open. If the terminal was closed, SIGHUP ends the gateway."""
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
            logger.error("reload-failed what=certificate: %s. The gateway keeps the previous one", error)  # noqa: TRY400
    if guard.asks_for_tokens:
        await guard.reload_keys()
        if guard.keys_error is None:
            reloaded.append("keys")
        else:
            logger.error("reload-failed what=keys: %s. The gateway keeps the previous ones", guard.keys_error)
    logger.info("reloaded after SIGHUP: %s", ", ".join(reloaded) or "nothing")


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _key_source(keys: str) -> KeySource:
    from gateway.keyurl import KeyUrl
    from gateway.tokens import KeyFile

    if "://" not in keys:
        return KeyFile(Path(keys))
    published = KeyUrl(keys)
    await published.refresh()
    if not published.has_come:
        logger.warning(
            "cannot read the keys of %s: %s. The gateway retries every 2 s, and refuses all tokens until then",
            redacted(keys),
            published.error,
        )
    return published


def _hook_settings(
    urls: Mapping[HookName, str | None], secret: Path | None, when_down: WhenDown
) -> HookSettings | None:
    from gateway.settings import HookSettings, read_hook_secret

    given = {name: url for name, url in urls.items() if url is not None}
    if not given:
        if secret is not None:
            raise UsageError(
                "--hook-secret signs hook calls: also give --hook-connect, --hook-subscribe or --hook-publish"
            )
        return None
    if secret is None:
        raise UsageError(
            "hooks need --hook-secret FILE, so that the game's backend can verify their calls: make the file with "
            "`openssl rand -hex 32 > hook.secret`"
        )
    settings = HookSettings(urls=given, secret=read_hook_secret(secret), when_down=when_down)
    if secret.stat().st_mode & 0o004:
        logger.warning("every user of this machine can read %s, and sign hook calls: chmod 600", secret)
    return settings


def _warn_of_readers(keys: Path) -> None:
    """Print a warning if other users can read a file of signing keys."""
    from gateway.tokens import Keys

    if Keys.read(keys).signing and keys.stat().st_mode & 0o044:
        logger.warning("other users of this machine can read %s, and sign tokens: chmod 600", keys)


def _warn_of_tls_key_readers(key: Path) -> None:
    """Print a warning if every user of this machine can read the certificate's private key."""
    if key.stat().st_mode & 0o004:
        logger.warning("every user of this machine can read the TLS key %s: chmod 640, or 600", key)


def _audit_stream(audit: Path | None, stack: ExitStack) -> Any:
    if audit is None:
        return None
    if str(audit) == "-":
        return sys.stderr
    with writing(f"--audit {audit}"):
        return stack.enter_context(audit.open("a", encoding="utf-8"))
