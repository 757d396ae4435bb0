"""The URLs of Redis servers: their users, and which parts of them may be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args
from urllib.parse import SplitResult, urlsplit, urlunsplit

Durability = Literal["memory", "disk"]

ESCAPES = "in passwords, write the characters : / ? # @ [ ] % as %3A %2F %3F %23 %40 %5B %5D %25"

_NO_PORT = re.compile(r"\A([^,/?\[\]:]*:)(?!\d*(?:\Z|[,/?]))[^,/?]*")
"""The text in the place of a port: a password in a URL without a host."""


_SHOWN = (
    "db",
    "protocol",
    "service",
    "sentinel_username",
    "replicas",
    "give_up_s",
    "durability",
    "nodes",
    "ssl_check_hostname",
    "max_connections",
    "health_check_interval",
)
_FINDER = re.compile(r"(?<![^?&])sentinel_(?:username|password)=[^&]*")
"""As whom sentinels are asked."""
_OPTION = re.compile(r"([?&])([^=&?]*)(=?)([^&]*)")


def redacted(url: str) -> str:
    """Return the URL without its passwords, for messages and logs; it may be invalid, for example without a scheme.

    Of the options at its end, only those that are known to be no secrets keep their values.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if not at and scheme != "unix":
        place = _NO_PORT.sub(r"\1***", place)
    known = f"{user}{':***' if colon else ''}{at}{place}"
    place, question, options = known.partition("?")
    return scheme + separator + place + _OPTION.sub(_shown, question + options)


def _shown(option: re.Match[str]) -> str:
    before, name, equals, value = option.groups()
    if not equals:
        return f"{before}***" if name else before
    return f"{before}{name}={value if name in _SHOWN or name.endswith('timeout') else '***'}"


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL; raises `ValueError`, which repeats nothing of the URL, if it is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"it cannot be read ({ESCAPES})") from None
    options = parts.query.split("&")
    if parts.scheme not in ("memory", "embedded") and (parts.fragment or not all(map(_is_option, options))):
        raise ValueError(f"it has a ? or # that does not begin options ({ESCAPES})")
    return parts


class OwnOptions(NamedTuple):
    """What a URL says to gamecast: how many replicas are to have what was written; after how many seconds without an
    answer the server's node is given up, None for never; and whether what was written is to be in the memory or on the
    disk of the server, and of the replicas."""

    replicas: int = 0
    give_up_s: float | None = None
    durability: Durability = "memory"


def own_options(url: str) -> tuple[str, OwnOptions]:
    """Return a URL without gamecast's own options, and these.

    Raises `ValueError` for replicas that are no number from 0 to 9, for seconds that are no positive number, and for a
    durability that is none.
    """
    place, question, query = url.partition("?")
    given = [option.partition("=") for option in query.split("&") if option]
    own = {name: value for name, _, value in given if name in OwnOptions._fields}
    if not question or not own:
        return url, OwnOptions()
    replicas, give_up_s = own.get("replicas", "0"), own.get("give_up_s")
    if not re.fullmatch("[0-9]", replicas):
        raise ValueError(f"replicas must be a number from 0 to 9, not {replicas!r}")
    if give_up_s is not None and not re.fullmatch(r"(?=.*[1-9])\d{1,9}(\.\d{1,9})?", give_up_s):
        raise ValueError(f"give_up_s must be a number of seconds, not {give_up_s!r}")
    left = "&".join("".join(option) for option in given if option[0] not in own)
    options = OwnOptions(
        int(replicas), float(give_up_s) if give_up_s else None, _durability(own.get("durability", "memory"))
    )
    return place + "?" * bool(left) + left, options


def _durability(text: str) -> Durability:
    if text not in get_args(Durability):
        raise ValueError(f"durability must be memory or disk, not {text!r}")
    return "disk" if text == "disk" else "memory"


def with_replicas(url: str, count: int) -> str:
    """Return a URL that wants so many replicas to have what was written; raises `ValueError` as `own_options`."""
    plain, own = own_options(url)
    return with_own_options(plain, own._replace(replicas=count))


def with_own_options(url: str, own: OwnOptions) -> str:
    """Return a URL that says this to gamecast, and nothing else; raises `ValueError` as `own_options`."""
    plain, _ = own_options(url)
    given = [f"replicas={own.replicas}"] if own.replicas else []
    if own.give_up_s is not None:
        given.append(f"give_up_s={own.give_up_s:g}")
    if own.durability != "memory":
        given.append(f"durability={own.durability}")
    return plain + ("&" if "?" in plain else "?") * bool(given) + "&".join(given)


def _is_option(text: str) -> bool:
    return not text or re.match(r"\w+=", text) is not None


def without_user(url: str) -> str:
    """Return a URL as it may be stored where every user can read it."""
    return with_user(url, "")


def stored_for_all(url: str, control_url: str) -> str:
    """Return a node's URL as it is stored for all users: without a user, if the control URL names one.

    In such a network, every client has a user and accesses nodes as that user. Otherwise all share the URL as it is.
    """
    user = urlsplit(control_url).netloc.rpartition("@")[0]
    return with_finder(without_user(url), []) if user.partition(":")[0] else url


def as_user_of(url: str, control_url: str) -> str:
    """Return a server's URL with the user of the control Redis, if that has one and the server's URL has none."""
    user = urlsplit(control_url).netloc.rpartition("@")[0]
    if not user.partition(":")[0] or "@" in urlsplit(url).netloc or not urlsplit(url).netloc:
        return url
    as_user = with_user(url, user)
    if _FINDER.search(as_user) or "+sentinel://" not in as_user:
        return as_user
    return with_finder(as_user, [option[0] for option in _FINDER.finditer(control_url)])


def with_finder(url: str, options: Sequence[str]) -> str:
    """Return a URL whose sentinels are asked as another user: options of a URL."""
    place, _, query = url.partition("?")
    left = [option for option in query.split("&") if option and not _FINDER.fullmatch(option)]
    return "?".join(filter(None, (place, "&".join([*left, *options]))))


def with_user(url: str, user: str) -> str:
    """Return a URL with another user, name:password, or with none."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
