"""The URLs of Redis servers: as whom one is reached, and what of it may be shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit


def redacted(url: str) -> str:
    """Return the URL without its passwords, for messages and logs."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
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
