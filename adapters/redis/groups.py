"""The servers behind a URL: a master, the replicas that may take its place, and the sentinels that choose one.

A user, and its password, must be on all of them: Redis does not replicate users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis import exceptions

from adapters.redis.connection import RedisConnection, parse_info
from adapters.redis.control import SOLE_NODE
from adapters.redis.places import REPLICAS_MAX, Address, ClusterPlaces, Places, SentinelPlaces, ask, places_of
from adapters.urls import own_options, redacted
from sequencing.errors import AuthenticationFailed, OtherSideError, UnknownScheme, Unreachable

SENTINEL_S_MAX = 5.0
_GONE = "s_down"
"""The flag of a server that has not answered Sentinel for long."""


@dataclass(frozen=True, slots=True)
class Group:
    """The servers behind one URL, as its user reaches them.

    ``servers``: URLs of those with the data; ``sentinels``: URLs, with the user that they know, empty without Sentinel;
    ``service``: under which name they know the group.
    """

    servers: tuple[str, ...]
    sentinels: tuple[str, ...] = ()
    service: str = ""

    @property
    def may_change(self) -> bool:
        """Whether another server may become the master."""
        return len(self.servers) > 1 or bool(self.sentinels)


async def group_behind(url: str) -> Group:
    """Return the servers behind a URL of any kind.

    Raises `Unreachable` if one that Sentinel knows does not answer it, `AuthenticationFailed` if the sentinels refuse
    the user, `UnknownScheme` for an invalid URL, and as `RedisConnection` does.
    """
    places = _places(url)
    if isinstance(places, SentinelPlaces):
        try:
            return await _watched(url, places)
        except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.ResponseError) as error:
            raise AuthenticationFailed(
                f"the sentinels of {redacted(url)} refuse their user: {error}; the URL may name one with "
                "?sentinel_username=NAME&sentinel_password=PASSWORD"
            ) from error
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise Unreachable(f"the sentinels of {redacted(url)} do not answer: {error!r}") from error
    if isinstance(places, ClusterPlaces):
        return Group(await _in_cluster(url, places))
    info = await _replication(url)
    return Group((url, *(_at(url, address) for address in replicas_in(info))))


def replicas_in(info: Mapping[str, str]) -> list[Address]:
    """Return the replicas that a master names in INFO."""
    told = (info.get(f"slave{number}", "") for number in range(REPLICAS_MAX))
    fields = [dict(part.partition("=")[::2] for part in each.split(",")) for each in told if each]
    return [Address(each["ip"], int(each["port"])) for each in fields if "ip" in each and "port" in each]


def replica_url(url: str, replica: Address) -> str:
    """Return the URL of a replica of the group behind a URL, with the same user."""
    places = _places(url)
    return places.url_of(replica) if places is not None else _at(url, replica)


def _places(url: str) -> Places | None:
    try:
        return places_of(url, SOLE_NODE)
    except ValueError as error:
        raise UnknownScheme(f"{redacted(url)!r} is not a Redis URL: {error}") from error


async def _watched(url: str, places: SentinelPlaces) -> Group:
    master = await places.look()
    told = await _ask_first(places, ("SENTINEL", "REPLICAS", places.service))
    others = await _ask_first(places, ("SENTINEL", "SENTINELS", places.service))
    replicas, others = list(map(_fields, told)), list(map(_fields, others))
    for each in (*replicas, *others):
        if _GONE in each["flags"].split(","):
            raise Unreachable(
                f"{_address(each)}, which Sentinel knows of {places.service!r} ({redacted(url)}), is not there: start "
                f"it, or have every sentinel forget it (SENTINEL RESET {places.service})"
            )
    sentinels = dict.fromkeys((*places.seeds, *map(_address, others)))
    there = await asyncio.gather(*(_answers(places.seed_url(each), places.service) for each in sentinels))
    named: dict[bytes, str] = {}
    for sentinel, who in zip(sentinels, there, strict=True):
        if who is not None:  # it has one address in the URL, and perhaps another one that the others know
            named.setdefault(who, places.seed_url(sentinel))
    return Group((master, *(places.url_of(_address(each)) for each in replicas)), tuple(named.values()), places.service)


async def _answers(url: str, service: str) -> bytes | None:
    """Return the id of a sentinel, None if there is none that watches over the service."""
    try:
        async with asyncio.timeout(SENTINEL_S_MAX):
            await ask(url, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))
            answer: bytes = await ask(url, ("SENTINEL", "MYID"))
    except (exceptions.ConnectionError, OSError, TimeoutError):
        return None
    return answer


async def _ask_first(places: Places, question: tuple[str, ...]) -> Sequence[Any]:
    """Ask the server that has just named the master."""
    async with asyncio.timeout(SENTINEL_S_MAX):
        answer: Sequence[Any] = await ask(places.seed_url(places.seeds[0]), question)
    return answer


async def _in_cluster(url: str, places: ClusterPlaces) -> tuple[str, ...]:
    answer: Iterable[Any]
    connection = RedisConnection(url, SOLE_NODE)
    try:
        answer = await connection.call(*places.question())
    finally:
        await connection.close()
    _, known = places.understood(answer, places.seeds[0])
    return tuple(map(places.url_of, known))


async def _replication(url: str) -> Mapping[str, str]:
    connection = RedisConnection(url, SOLE_NODE)
    try:
        return parse_info(await connection.call("INFO", "replication"))
    finally:
        await connection.close()


def _at(url: str, address: Address) -> str:
    """Return a URL of another server, with the same user and options, but those of gamecast."""
    parts = urlsplit(own_options(url)[0])
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{address}"))


def _fields(told: Sequence[bytes]) -> dict[str, str]:
    texts = [each.decode() for each in told]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _address(fields: Mapping[str, str]) -> Address:
    return Address(fields["ip"], int(fields["port"]))


async def ask_sentinel(url: str, *command: str) -> Any:
    """Ask a sentinel of a group, by its URL. Raises `AuthenticationFailed`, `OtherSideError` or `Unreachable`."""
    try:
        async with asyncio.timeout(SENTINEL_S_MAX):
            return await ask(url, command)
    except exceptions.AuthenticationError as error:
        raise AuthenticationFailed(f"the sentinel at {redacted(url)} refuses its user: {error}") from error
    except exceptions.ResponseError as error:
        raise OtherSideError(f"the sentinel at {redacted(url)} refuses {' '.join(command[:2])}: {error}") from error
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        raise Unreachable(f"the sentinel at {redacted(url)} does not answer: {error!r}") from error
