"""The URLs of Redis servers: as whom one is reached, and what of it may be shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_NO_PORT = re.compile(r"\A([^,/?\[\]:]*:)(?!\d*(?:\Z|[,/?]))[^,/?]*")
"""What stands where a port would: a password whose host was forgotten."""


def redacted(url: str) -> str:
    """Return the URL without its passwords, for messages and logs; also one that is none, as without its scheme."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if not at and scheme != "unix":
        place = _NO_PORT.sub(r"\1***", place)
    known = f"{user}{':***' if colon else ''}{at}{place}"
    return scheme + separator + re.sub(r"(password=)[^&]*", r"\1***", known)


def without_user(url: str) -> str:
    """Return a URL as it may be stored where everybody reads it."""
    return with_user(url, "")


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
