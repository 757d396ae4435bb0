"""Which requests the gateway accepts: tokens, origins and hosts."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from gateway.grants import ANYBODY, Grant, anybody
from gateway.keyurl import FIRST_RETRY_S, RETRY_S, WAIT_S_MAX, KeyUrl
from gateway.refusal import Close, Code, Refusal
from gateway.replaycache import ReplayCache
from gateway.revocations import Revocation, Revocations
from gateway.settings import GatewaySettings, is_loopback, unmapped
from gateway.tokens import AUDIENCE, KeyFile, KeySource, is_signed_by, verify
from sequencing.errors import UsageError

BEARER = "bearer "
OPERATORS_PATHS = "metrics", "healthz", "readyz", "dashboard"
REMOTE_LETTERS_MAX = 64
"""The maximum length of a client address that a proxy reports."""


class Guard:
    """Decides which requests are accepted."""

    def __init__(
        self,
        settings: GatewaySettings,
        replay_cache: ReplayCache,
        *,
        keys: KeySource | None = None,
        audience: str = AUDIENCE,
    ) -> None:
        """``keys``: None accepts every client, so then only this machine may reach the gateway; raises `UsageError`."""
        if keys is None and not is_loopback(settings.host):
            raise UsageError(
                f"without keys the gateway admits every client, so it cannot listen at {settings.host}. Make keys with "
                "`gamecast token keygen --out keys.json` and give --keys keys.json, or listen at 127.0.0.1"
            )
        if keys is None and settings.admin is not None and not is_loopback(settings.admin[0]):
            raise UsageError(
                "without keys the gateway accepts every client, so its address for operators must be on this machine, "
                f"not {settings.admin[0]}"
            )
        self._settings, self._replay_cache, self._keys, self._audience = settings, replay_cache, keys, audience
        self._revocations = Revocations()
        self.admin_ports: set[int] = set()
        """The ports at which the gateway listens for operators."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether clients need a token."""
        return self._keys is not None

    @property
    def keys_error(self) -> str | None:
        """The reason why the previous keys are still used: the current ones cannot be read."""
        return self._keys.error if self._keys is not None else None

    @property
    def has_keys(self) -> bool:
        """Whether tokens can be checked. False until a key provider has sent its keys for the first time."""
        return not isinstance(self._keys, KeyUrl) or self._keys.has_come

    async def close(self) -> None:
        """Close the key source and the store of revocations."""
        if isinstance(self._keys, KeyUrl):
            await self._keys.close()

    async def reload_keys(self) -> None:
        """Read or request the keys again now; `keys_error` reports a failure."""
        if isinstance(self._keys, KeyFile):
            self._keys.reload()
        elif isinstance(self._keys, KeyUrl):
            await self._keys.refresh(older_than_s=0.0)

    async def look(self) -> list[Revocation]:
        """Read the revocations and the keys; return the new revocations.

        Raises `NetworkError` or `OtherSideError`; the previous ones stay in force.
        """
        if isinstance(self._keys, KeyFile):
            self._keys.keys()  # so that a broken file is reported before the next token arrives
        elif isinstance(self._keys, KeyUrl):
            if self._keys.has_come:
                await self._keys.refresh(wait_s=WAIT_S_MAX)
            else:
                await self._keys.refresh(older_than_s=FIRST_RETRY_S, wait_s=WAIT_S_MAX)
        return self._revocations.take(await self._replay_cache.revocations()) if self._keys is not None else []

    def ends(self, grant: Grant, new: Iterable[Revocation]) -> tuple[int, str] | None:
        """Return the close code and the reason if a session with this grant must end now, else None."""
        if self._keys is None or grant.subject == ANYBODY or not self.has_keys:
            return None
        if grant.key_id not in self._keys.keys().by_id:
            return Close.UNAUTHORIZED, "the key of this token is no longer valid: get a new token"
        if self._revocations.refuses(grant):
            return Close.UNAUTHORIZED, "this token was revoked"
        if any(each.means(grant) for each in new):
            return Close.GOING_AWAY, "an operator ended this session: connect again"
        return None

    async def grant(self, token: str | None, before: Grant | None) -> Grant:
        """Return what a token allows, or ``before`` without a token; raises `Refusal`.

        This uses up a single-use token.
        """
        if self._keys is None:
            return anybody()
        if token is None:
            if before is None:
                raise Refusal(Code.UNAUTHORIZED, "this gateway asks for a token", status=401)
            return before
        if isinstance(self._keys, KeyUrl):
            await self._look_for_key(token, self._keys)
        leeway_s = self._settings.limits.token_leeway_s
        verified = verify(token, self._keys.keys(), self._audience, leeway_s=leeway_s)
        if self._revocations.refuses(verified.grant):
            raise Refusal(Code.UNAUTHORIZED, "this token was revoked", status=401)
        if verified.once_until_s is not None:
            await self._use_up(verified.grant, verified.once_until_s)
        return verified.grant

    async def request_grant(self, request: web.Request, *, in_query: bool = False) -> Grant | None:
        """Return what the token of a request allows, None if it has none and needs one; raises `Refusal`.

        ``in_query``: accept ``access_token`` in the query as well, for clients that cannot set headers.
        """
        header = request.headers.get("Authorization", "")
        token: str | None = None
        if header[: len(BEARER)].lower() == BEARER:
            token = header[len(BEARER) :].strip()
        elif header:
            raise Refusal(Code.UNAUTHORIZED, "the Authorization header must be 'Bearer TOKEN'", status=401)
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
        """Return the grant of a request that may see metrics and the dashboard; raises `Refusal`.

        With an address for operators, every request to it may, and no other request.
        """
        if self._settings.admin is not None:
            if not self.is_admin(request):
                raise Refusal(Code.NOT_FOUND, "the gateway serves this at its address for operators", status=404)
            if not self._is_operators_name(_called(request)):
                raise Refusal(
                    Code.ORIGIN,
                    f"the address for operators has no host name {request.host[:80]!r}: allow it with --admin-name",
                    status=403,
                )
            return anybody()
        grant = await self.require_grant(request, in_query=True)
        if not grant.watch:
            raise Refusal(Code.FORBIDDEN, "this token does not let you watch the gateway", status=403)
        return grant

    def check_address(self, request: web.Request) -> None:
        """Raise `Refusal` for a path that the address for operators lacks.

        An address that only this machine reaches lacks none.
        """
        if self._settings.admin is None or is_loopback(self._settings.admin[0]) or not self.is_admin(request):
            return
        if request.path.partition("/")[2].partition("/")[0] not in OPERATORS_PATHS:
            raise Refusal(Code.NOT_FOUND, "the gateway serves this at its other address", status=404)

    def is_admin(self, request: web.Request) -> bool:
        """Return whether a request came to the address for operators."""
        here = request.transport.get_extra_info("sockname") if request.transport is not None else None
        return here is not None and here[1] in self.admin_ports

    def remote(self, request: web.Request) -> str | None:
        """Return the client's address, None if it is unknown.

        Behind trusted proxies it is the last one that they report and that is not a trusted proxy.
        """
        remote = request.remote
        named = [name.strip() for line in request.headers.getall("X-Forwarded-For", []) for name in line.split(",")]
        while named and remote is not None and self.is_proxy(remote):
            remote = _address_in(named.pop()[:REMOTE_LETTERS_MAX])
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
        """Return the origin of the page that sent the request, None if it is the gateway's own; raises `Refusal`.

        Browsers name the origin of a script. Other clients name none, and need only their token.
        """
        if self._keys is None and not _is_called_local(request):
            said = f"without keys the gateway accepts the host name localhost only, not {request.host[:80]!r}"
            raise Refusal(Code.ORIGIN, said, status=403)
        origin = request.headers.get("Origin")
        if origin is None:
            self._check_site(request)
            return None
        if _is_origin(origin):
            if urlsplit(origin).netloc == request.host and origin.partition("://")[0] in ("http", "https"):
                return None
            if "*" in self._settings.origins or origin in self._settings.origins:
                return origin
        raise Refusal(
            Code.ORIGIN, f"pages of {origin[:80]!r} may not use this gateway: allow them with --origin", status=403
        )

    def _check_site(self, request: web.Request) -> None:
        """Raise `Refusal` for what a page of another origin loads, as an image or a script: browsers name no origin.

        Somebody may follow a link to here.
        """
        is_elsewhere = request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        is_link = request.method == "GET" and request.headers.get("Sec-Fetch-Dest") == "document"
        if is_elsewhere and not is_link and "*" not in self._settings.origins:
            raise Refusal(
                Code.ORIGIN,
                "pages of other origins may not load this: let them ask with fetch and --origin",
                status=403,
            )

    @staticmethod
    def origin_headers(origin: str | None) -> dict[str, str]:
        """Return the headers with which a browser lets a page of another origin read the response."""
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
        """Return whether operators may use this host name.

        A web page can make its own name point here, but not an address.
        """
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
        """Request the keys again if a token's key may be new; raises `Refusal` if no keys have arrived at all."""
        if keys.has_come and is_signed_by(token, keys.keys()):
            return
        await keys.look_for(older_than_s=RETRY_S if keys.has_come else FIRST_RETRY_S)
        if not keys.has_come:
            raise Refusal(
                Code.UNREACHABLE,
                "the gateway cannot check tokens, because its key provider does not answer: try again later",
                status=503,
                retriable=True,
                retry_after_s=FIRST_RETRY_S,
            )

    async def _use_up(self, grant: Grant, until_s: float) -> None:
        left_s = until_s - time.time()
        if await self._replay_cache.claim(f"once:{grant.token_id}", b"used", max(left_s, 1.0)) is not None:
            raise Refusal(Code.UNAUTHORIZED, "this single-use token was used already: get a new one", status=401)


def _address_in(named: str) -> str:
    """Return the address that a proxy reports, without the port that some add to it."""
    host, colon, port = named.rpartition(":")
    if colon and port.isdecimal() and (host.count(":") == 0 or (host.startswith("[") and host.endswith("]"))):
        named = host
    return named.removeprefix("[").removesuffix("]")


def _is_called_local(request: web.Request) -> bool:
    """Return whether the Host header names this machine; a web page can make its own name point here."""
    return is_loopback(_called(request))


def _called(request: web.Request) -> str:
    """Return the host name or address of the Host header, without the port."""
    host = request.host.rpartition(":")[0] if request.host.count(":") == 1 else request.host
    return host.strip("[]").partition("]")[0]


def _is_origin(text: str) -> bool:
    """Return whether an Origin header is well-formed: ASCII, as browsers send it, with a valid host."""
    if not (text.isascii() and text.isprintable()):
        return False
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True
