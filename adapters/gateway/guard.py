"""Which requests the gateway accepts: tokens, origins and hosts."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from adapters.gateway.grants import ANYBODY, Grant, anybody
from adapters.gateway.keyurl import FIRST_RETRY_S, RETRY_S, WAIT_S_MAX, KeyUrl
from adapters.gateway.messages import Close, Code, Refusal
from adapters.gateway.replaycache import ReplayCache
from adapters.gateway.revocations import Revocation, Revocations
from adapters.gateway.settings import GatewaySettings, is_loopback, unmapped
from adapters.gateway.tokens import AUDIENCE, KeyFile, KeySource, is_signed_by, verify
from sequencing.errors import UsageError

BEARER = "bearer "
OPERATORS_PATHS = "metrics", "healthz", "readyz", "dashboard"
REMOTE_LETTERS_MAX = 64
"""Of an address that a proxy tells."""


class Guard:
    """Decides who is let in."""

    def __init__(
        self,
        settings: GatewaySettings,
        replay_cache: ReplayCache,
        *,
        keys: KeySource | None = None,
        audience: str = AUDIENCE,
    ) -> None:
        """``keys``: None lets everybody in, so then only this machine may reach the gateway; raises `UsageError`."""
        if keys is None and not is_loopback(settings.host):
            raise UsageError(
                f"without keys the gateway lets everybody in, so it does not listen at {settings.host}: make keys with "
                "`gamecast token keygen --out keys.json` and give --keys keys.json, or listen at 127.0.0.1"
            )
        if keys is None and settings.admin is not None and not is_loopback(settings.admin[0]):
            raise UsageError(
                "without keys the gateway lets everybody in, so its address for operators is one of this machine only, "
                f"not {settings.admin[0]}"
            )
        self._settings, self._replay_cache, self._keys, self._audience = settings, replay_cache, keys, audience
        self._revocations = Revocations()
        self.admin_ports: set[int] = set()
        """Where the gateway listens for operators."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether anybody needs a token."""
        return self._keys is not None

    @property
    def keys_error(self) -> str | None:
        """Why the keys of before count on, if those of now cannot be read."""
        return self._keys.error if self._keys is not None else None

    @property
    def has_keys(self) -> bool:
        """Whether tokens can be checked: not before a provider's keys have come for the first time."""
        return not isinstance(self._keys, KeyUrl) or self._keys.has_come

    async def close(self) -> None:
        """Release what the guard holds."""
        if isinstance(self._keys, KeyUrl):
            await self._keys.close()

    async def reload_keys(self) -> None:
        """Read or ask for the keys again now; what goes wrong is told by `keys_error`."""
        if isinstance(self._keys, KeyFile):
            self._keys.reload()
        elif isinstance(self._keys, KeyUrl):
            await self._keys.refresh(older_than_s=0.0)

    async def look(self) -> list[Revocation]:
        """Learn what was revoked, and which keys there are; return what is newly revoked.

        Raises `NetworkError` or `OtherSideError`; what was known before counts on.
        """
        if isinstance(self._keys, KeyFile):
            self._keys.keys()  # so that a broken file shows before the next token comes
        elif isinstance(self._keys, KeyUrl):
            if self._keys.has_come:
                await self._keys.refresh(wait_s=WAIT_S_MAX)
            else:
                await self._keys.refresh(older_than_s=FIRST_RETRY_S, wait_s=WAIT_S_MAX)
        return self._revocations.take(await self._replay_cache.revocations()) if self._keys is not None else []

    def ends(self, grant: Grant, new: Iterable[Revocation]) -> tuple[int, str] | None:
        """Return why what began with a grant ends now, as close code and reason, None if it does not."""
        if self._keys is None or grant.subject == ANYBODY or not self.has_keys:
            return None
        if grant.key_id not in self._keys.keys().by_id:
            return Close.UNAUTHORIZED, "the key of this token is not good any more: get a new token"
        if self._revocations.refuses(grant):
            return Close.UNAUTHORIZED, "this token was revoked"
        if any(each.means(grant) for each in new):
            return Close.GOING_AWAY, "this session was ended: go on in a new one"
        return None

    async def grant(self, token: str | None, before: Grant | None) -> Grant:
        """Return what a token allows, else what one from before does; raises `Refusal`. A single-use token is used."""
        if self._keys is None:
            return anybody()
        if token is None:
            if before is None:
                raise Refusal(Code.UNAUTHORIZED, "this gateway asks for a token", status=401)
            return before
        if isinstance(self._keys, KeyUrl):
            await self._look_for_key(token, self._keys)
        verified = verify(token, self._keys.keys(), self._audience)
        if self._revocations.refuses(verified.grant):
            raise Refusal(Code.UNAUTHORIZED, "this token was revoked", status=401)
        if verified.once_until_s is not None:
            await self._use_up(verified.grant, verified.once_until_s)
        return verified.grant

    async def request_grant(self, request: web.Request, *, in_query: bool = False) -> Grant | None:
        """Return what the token of a request allows, None where it has none and needs one; raises `Refusal`.

        ``in_query``: also as ``access_token``, for those who cannot set headers.
        """
        header = request.headers.get("Authorization", "")
        token: str | None = None
        if header[: len(BEARER)].lower() == BEARER:
            token = header[len(BEARER) :].strip()
        elif header:
            raise Refusal(Code.UNAUTHORIZED, "the Authorization header is 'Bearer TOKEN'", status=401)
        elif in_query:
            token = request.query.get("access_token")
        if token is None and self._keys is not None:
            return None
        return await self.grant(token, None)

    async def require_grant(self, request: web.Request, *, in_query: bool = False) -> Grant:
        """Return what the token of a request allows; raises `Refusal`."""
        grant = await self.request_grant(request, in_query=in_query)
        return grant if grant is not None else await self.grant(None, None)

    async def require_watcher(self, request: web.Request) -> Grant:
        """Return what somebody may who may see metrics and the dashboard; raises `Refusal`.

        Where there is an address for that, whoever reaches it may, and nobody elsewhere.
        """
        if self._settings.admin is not None:
            if not self.is_admin(request):
                raise Refusal(Code.NOT_FOUND, "this is at another address of the gateway", status=404)
            if not self._is_operators_name(_called(request)):
                raise Refusal(
                    Code.ORIGIN,
                    f"the address for operators is not called {request.host[:80]!r}: allow it with --admin-name",
                    status=403,
                )
            return anybody()
        grant = await self.require_grant(request, in_query=True)
        if not grant.watch:
            raise Refusal(Code.FORBIDDEN, "this token does not let you watch the gateway", status=403)
        return grant

    def check_address(self, request: web.Request) -> None:
        """Raise `Refusal` for what is not at the address for operators, where others than this machine reach that."""
        if self._settings.admin is None or is_loopback(self._settings.admin[0]) or not self.is_admin(request):
            return
        if request.path.partition("/")[2].partition("/")[0] not in OPERATORS_PATHS:
            raise Refusal(Code.NOT_FOUND, "this is at another address of the gateway", status=404)

    def is_admin(self, request: web.Request) -> bool:
        """Return whether a request came by the address for operators."""
        here = request.transport.get_extra_info("sockname") if request.transport is not None else None
        return here is not None and here[1] in self.admin_ports

    def remote(self, request: web.Request) -> str | None:
        """Return who asks: whom the last proxy that is not trusted, or none is before, has named."""
        remote = request.remote
        named = [name.strip() for line in request.headers.getall("X-Forwarded-For", []) for name in line.split(",")]
        while named and remote is not None and self.is_proxy(remote):
            remote = named.pop()[:REMOTE_LETTERS_MAX]
        return remote

    def is_proxy(self, remote: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        try:
            address = ipaddress.ip_address(remote)
        except ValueError:
            return False
        address = unmapped(address)
        return any(address in network for network in self._settings.trusted_proxies)

    def check_origin(self, request: web.Request) -> str | None:
        """Return the origin of the page that asks, None if it is no other page's; raises `Refusal`.

        Browsers say where a script comes from; other clients say nothing, and need nothing but their token.
        """
        if self._keys is None and not _is_called_local(request):
            said = f"without keys the gateway is called localhost, not {request.host[:80]!r}"
            raise Refusal(Code.ORIGIN, said, status=403)
        origin = request.headers.get("Origin")
        if origin is None:
            return None
        if _is_origin(origin):
            if urlsplit(origin).netloc == request.host and origin.partition("://")[0] in ("http", "https"):
                return None
            if "*" in self._settings.origins or origin in self._settings.origins:
                return origin
        raise Refusal(Code.ORIGIN, f"pages of {origin[:80]!r} may not use this gateway: see --origin", status=403)

    @staticmethod
    def origin_headers(origin: str | None) -> dict[str, str]:
        """Return the headers by which a browser lets a page of another origin see the answer."""
        if origin is None:
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Max-Age": "600",
            "Vary": "Origin",
        }

    def _is_operators_name(self, host: str) -> bool:
        """Return whether operators may call their address so: a page can have its own name lead there, no number."""
        assert self._settings.admin is not None
        if is_loopback(host) or host.lower() in self._settings.admin_names:
            return True
        if is_loopback(self._settings.admin[0]):
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host.lower() == self._settings.admin[0].lower()
        return True

    @staticmethod
    async def _look_for_key(token: str, keys: KeyUrl) -> None:
        """Ask for the keys again where a token's may be new; raises `Refusal` where none have come at all."""
        if keys.has_come and is_signed_by(token, keys.keys()):
            return
        await keys.look_for(older_than_s=RETRY_S if keys.has_come else FIRST_RETRY_S)
        if not keys.has_come:
            raise Refusal(
                Code.UNREACHABLE,
                "the gateway has no keys to check tokens with: their provider does not answer. Try again later",
                status=503,
                retriable=True,
                retry_after_s=FIRST_RETRY_S,
            )

    async def _use_up(self, grant: Grant, until_s: float) -> None:
        left_s = until_s - time.time()
        if await self._replay_cache.claim(f"once:{grant.token_id}", b"used", max(left_s, 1.0)) is not None:
            raise Refusal(Code.UNAUTHORIZED, "this token was used already, and is for single use", status=401)


def _is_called_local(request: web.Request) -> bool:
    """Return whether a request names this machine: a page may have its own name point here."""
    return is_loopback(_called(request))


def _called(request: web.Request) -> str:
    """Return the name or number by which a request calls this machine, without the port."""
    host = request.host.rpartition(":")[0] if request.host.count(":") == 1 else request.host
    return host.strip("[]").partition("]")[0]


def _is_origin(text: str) -> bool:
    """Return whether an Origin header has the form of one: browsers send ASCII, and a host that can be read."""
    if not (text.isascii() and text.isprintable()):
        return False
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True
