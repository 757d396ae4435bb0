"""The URLs of Redis servers: as whom one is reached, and what of it may be shown."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

ESCAPES = "in passwords, the characters : / ? # @ [ ] % are written %3A %2F %3F %23 %40 %5B %5D %25"

_NO_PORT = re.compile(r"\A([^,/?\[\]:]*:)(?!\d*(?:\Z|[,/?]))[^,/?]*")
"""What stands where a port would: a password whose host was forgotten."""


_SHOWN = ("db", "protocol", "service", "nodes", "ssl_check_hostname", "max_connections", "health_check_interval")
_OPTION = re.compile(r"([?&])([^=&?]*)(=?)([^&]*)")


def redacted(url: str) -> str:
    """Return the URL without its passwords, for messages and logs; also one that is none, as without its scheme.

    Of the options at its end, only the values of those are shown that are known to be no secrets.
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
    """Return the parts of a URL; raises `ValueError` for what is none, which repeats nothing of it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"it cannot be read ({ESCAPES})") from None
    options = parts.query.split("&")
    if parts.scheme not in ("memory", "embedded") and (parts.fragment or not all(map(_is_option, options))):
        raise ValueError(f"it has a ? or # that begins no options ({ESCAPES})")
    return parts


def _is_option(text: str) -> bool:
    return not text or re.match(r"\w+=", text) is not None


def without_user(url: str) -> str:
    """Return a URL as it may be stored where everybody reads it."""
    return with_user(url, "")


def stored_for_all(url: str, control_url: str) -> str:
    """Return a node's URL as it is stored for everybody: without a user, where the control URL names one.

    There everybody has a user, and reaches nodes as that; else all share what the URL says.
    """
    user = urlsplit(control_url).netloc.rpartition("@")[0]
    return without_user(url) if user.partition(":")[0] else url


def as_user_of(url: str, control_url: str) -> str:
    """Return a server's URL with the user of the control Redis, if that names one and the server's does not."""
    user = urlsplit(control_url).netloc.rpartition("@")[0]
    if not user.partition(":")[0] or "@" in urlsplit(url).netloc or not urlsplit(url).netloc:
        return url
    return with_user(url, user)


def with_user(url: str, user: str) -> str:
    """Return a URL with another user, name:password, or with none."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
