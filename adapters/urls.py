"""The URLs of Redis servers: their users, and which parts of them may be shown."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

ESCAPES = "in passwords, write the characters : / ? # @ [ ] % as %3A %2F %3F %23 %40 %5B %5D %25"

_NO_PORT = re.compile(r"\A([^,/?\[\]:]*:)(?!\d*(?:\Z|[,/?]))[^,/?]*")
"""The text in the place of a port: a password in a URL without a host."""


_SHOWN = (
    "db",
    "protocol",
    "service",
    "replicas",
    "nodes",
    "ssl_check_hostname",
    "max_connections",
    "health_check_interval",
)
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


def replicas_in(url: str) -> tuple[str, int]:
    """Return a URL without its option ``replicas``, and how many replicas it wants to have what was written.

    Raises `ValueError` for what is no number from 0 to 9.
    """
    place, question, query = url.partition("?")
    options = [option for option in query.split("&") if option]
    wanted = [option.partition("=")[2] for option in options if option.partition("=")[0] == "replicas"]
    if not question or not wanted:
        return url, 0
    if not re.fullmatch("[0-9]", wanted[-1]):
        raise ValueError(f"replicas must be a number from 0 to 9, not {wanted[-1]!r}")
    left = [option for option in options if option.partition("=")[0] != "replicas"]
    return place + "?" * bool(left) + "&".join(left), int(wanted[-1])


def with_replicas(url: str, count: int) -> str:
    """Return a URL that wants so many replicas to have what was written; raises `ValueError` as `replicas_in`."""
    plain, _ = replicas_in(url)
    return f"{plain}{'&' if '?' in plain else '?'}replicas={count}" if count else plain


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
    return without_user(url) if user.partition(":")[0] else url


def as_user_of(url: str, control_url: str) -> str:
    """Return a server's URL with the user of the control Redis, if that has one and the server's URL has none."""
    user = urlsplit(control_url).netloc.rpartition("@")[0]
    if not user.partition(":")[0] or "@" in urlsplit(url).netloc or not urlsplit(url).netloc:
        return url
    return with_user(url, user)


def with_user(url: str, user: str) -> str:
    """Return a URL with another user, name:password, or with none."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
