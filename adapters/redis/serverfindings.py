"""What an examination finds of one Redis server: its memory, persistence and access."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from adapters.redis.access import AccessState, Refused
from adapters.redis.examination import Finding
from adapters.redis.probe import ServerState
from adapters.redis.refusals import BECAUSE
from adapters.redis.users import REPLICATING
from adapters.wording import counted, named

CLOCK_MS_MAX = 100.0
MEMORY_WARNING, MEMORY_PROBLEM = 0.8, 0.95
_FORBIDDEN = ("NOPERM", "can't run this command", "can't access", "ACL failure")
"""What servers say, in scripts the second and third up to Redis 7.0 and the last since 7.2."""

_REFUSES_NOW = re.compile(r"\b(?:OOM|MISCONF|NOREPLICAS|READONLY)\b")
"""What servers say that refuse writes of all users."""

_NO_LUA = "Could not find scripting engine"
"""What Valkey says since 9.1, where Lua is a module, which may be missing."""

KEEPS_NOTHING = "appendonly no"
"""How the finding begins of a server without an append-only file."""

_LIMITED = "publisher", "subscriber", "relay", "gateway", "watcher", "operator"
"""Users that `adapters.redis.users` makes: each may do its part only."""


def server_findings(subject: str, server: ServerState) -> Iterator[Finding]:
    """Yield what is found of a server that hosts the control store or nodes, named by ``subject``."""
    if not server.version:
        yield Finding("problem", subject, "does not answer INFO, which gamecast needs", "let the user run INFO")
        return
    if server.product.startswith("Dragonfly"):
        seen = f"is {server.product}, whose scripts cannot use keys that they were not given: no plan can be installed"
        yield Finding("problem", subject, seen, "use Redis 6.2 or later, or Valkey")
        return
    has_number = server.product[-1].isdigit()
    yield Finding("ok", subject, server.product if has_number else f"{server.product} {server.version}")
    if server.role == "slave":
        yield Finding("problem", subject, "is a replica, which accepts no writes", "use the URL of its primary")
    policy = server.memory_policy
    if policy == "noeviction":
        yield Finding("ok", subject, "maxmemory-policy noeviction: nothing is dropped to make room")
    elif policy:
        dropped = "anything, counters and streams too" if policy.startswith("allkeys") else "the lease"
        yield Finding(
            "problem" if policy.startswith("allkeys") else "warning",
            subject,
            f"maxmemory-policy {policy}: when it is full, Redis drops {dropped}",
            "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    yield _memory(subject, server)
    yield from _refusing(subject, server)
    if (found := _persistence(subject, server)) is not None:
        yield found
    yield from _settings(subject, server)
    if server.replicas_wanted:
        yield from _replication(subject, server)
    if server.disk_wanted and (not server.append_only or server.appendfsync == "no"):
        seen = "its URL says durability=disk, and it never says that something is on disk: nothing is acknowledged"
        yield Finding(
            "problem", subject, seen, "CONFIG SET appendonly yes, CONFIG SET appendfsync always, in redis.conf too"
        )
    if server.clock_ahead_ms is not None and server.round_trip_ms is not None:
        off, unsure = abs(server.clock_ahead_ms), server.round_trip_ms / 2
        if off - unsure > CLOCK_MS_MAX:
            seen = f"its clock is {off:,.0f} ms {'ahead of' if server.clock_ahead_ms > 0 else 'behind'} this machine's"
            yield Finding("warning", subject, seen, "run NTP on both machines: delays are measured by clocks")
        else:
            yield Finding("ok", subject, f"its clock agrees with this machine's to {off + unsure:.1f} ms")


def _memory(subject: str, server: ServerState) -> Finding:
    used, limit = server.memory_bytes, server.memory_bytes_max
    if used is None or limit is None:
        seen = (
            "does not report how much memory it uses"
            if used is None
            else f"{size_text(used)} in use, of an unread limit"
        )
        return Finding("warning", subject, f"{seen}: not examined", "see its maxmemory where it is configured")
    if not limit:
        return Finding("ok", subject, f"{size_text(used)} in use, without a limit (maxmemory 0)")
    full = used / limit
    seen = f"{size_text(used)} of {size_text(limit)} in use ({full:.0%})"
    if "memory" in server.refuses:
        more = f"CONFIG SET maxmemory {math.ceil(max(limit, used) * 1.5 / 2**20)}mb, and the same in redis.conf"
        if server.machine_bytes:
            more += f" (its machine has {size_text(server.machine_bytes)})"
        advice = f"{more}; then keep fewer events (gamecast manager --retention-events)"
        return Finding("problem", subject, f"is full, and refuses writes: {seen}", advice)
    if full < MEMORY_WARNING:
        return Finding("ok", subject, seen)
    advice = "raise maxmemory, or keep fewer events (retention_events): a full Redis refuses publishes"
    return Finding("problem" if full >= MEMORY_PROBLEM else "warning", subject, seen, advice)


def _refusing(subject: str, server: ServerState) -> Iterator[Finding]:
    if "disk" in server.refuses:
        seen = f"refuses writes: {BECAUSE['disk']}"
        if "stop-writes-on-bgsave-error" in server.settings_unread and not server.append_only:
            seen += ", unless stop-writes-on-bgsave-error is no, which it does not report"
        advice = "free space there (df -h); its log says what failed. After a failed snapshot, make one: BGSAVE"
        yield Finding("problem", subject, seen, advice)
    if "replicas" in server.refuses:
        need = "is not reported" if server.writes_need is None else f"is {server.writes_need}"
        seen = f"refuses writes: too few of its replicas are there; min-replicas-to-write {need}"
        yield Finding("problem", subject, seen, "start its replicas; INFO replication lists those that are there")


def _persistence(subject: str, server: ServerState) -> Finding | None:
    if server.loading:
        seen = "is still loading its data: it accepts no command, and does not report what it keeps"
        return Finding("warning", subject, seen, "wait until it has finished, and repeat this")
    advice = "where that matters: CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in redis.conf"
    if not server.append_only:
        lost = "everything" if server.save == "" else "everything since the last snapshot"
        return Finding("warning", subject, f"{KEEPS_NOTHING}: when it restarts, {lost} is lost", advice)
    match server.appendfsync:
        case "always":
            return Finding("ok", subject, "appendonly yes, appendfsync always: nothing acknowledged is lost")
        case "everysec":
            seen = "appendfsync everysec: when its machine fails, the last second may be lost"
        case "no":
            seen = "appendfsync no: when its machine fails, what the system had not written yet (half a minute) is lost"
        case _:
            return None  # unread, see `_settings`
    return Finding("warning", subject, seen, advice)


def _settings(subject: str, server: ServerState) -> Iterator[Finding]:
    if server.append_only and server.loads_truncated is False:
        seen = "aof-load-truncated no: after a power cut it does not start, though what is torn was not acknowledged"
        yield Finding("warning", subject, seen, "CONFIG SET aof-load-truncated yes, and the same in redis.conf")
    if limit := server.output_bytes_max:
        seen = f"client-output-buffer-limit normal: it disconnects readers for whom {size_text(limit)} wait"
        advice = 'CONFIG SET client-output-buffer-limit "normal 0 0 0", and the same in redis.conf'
        yield Finding("warning", subject, seen, advice)
    if idle_s := server.idle_s_max:
        seen = f"timeout {idle_s}: it closes connections that are idle for {idle_s:,} s, and they have to reopen"
        yield Finding("warning", subject, seen, "CONFIG SET timeout 0, and the same in redis.conf")
    known = {"min-replicas-to-write"} if server.writes_need is not None else set()
    if unread := [name for name in server.settings_unread if name not in known]:
        seen = f"does not report {', '.join(unread)} to this user: not examined"
        yield Finding("warning", subject, seen, "repeat this as a user who may run CONFIG GET, or see redis.conf")


def _replication(subject: str, server: ServerState) -> Iterator[Finding]:
    there, wanted = server.replicas, server.replicas_wanted
    if there < wanted:
        seen = f"{there} of the {wanted} replicas that its URL wants are there: nothing is acknowledged"
        yield Finding("problem", subject, seen, "start its replicas, or register it with fewer (--replicas)")
    elif there > wanted:
        seen = f"a receipt waits for {wanted} of {there} replicas: any failover may lose what was acknowledged"
        yield Finding("problem", subject, seen, f"register it with --replicas {there}")
    else:
        seen = f"a receipt waits for all {wanted} replicas: one that takes over lacks nothing acknowledged"
        yield Finding("ok", subject, seen)
    if server.writes_need == 0:
        seen = "min-replicas-to-write 0: behind a partition it goes on delivering events that are lost later"
        advice = f"CONFIG SET min-replicas-to-write {wanted}, CONFIG SET min-replicas-max-lag 2, and in redis.conf"
        yield Finding("warning", subject, seen, advice)


def access_findings(name: str, may: AccessState) -> Finding:
    """Return whether a user may do what is needed of it."""
    who = f"user {may.user}" if may.user is not None else "the user"
    if may.refused is None:
        return Finding("ok", name, f"{who} may run the scripts and the commands that gamecast needs")
    if _REFUSES_NOW.search(may.refused):
        advice = "this is no lack of permissions: its server refuses writes, see what is found of it"
        return Finding("problem", name, f"{who} is refused: {may.refused}", advice)
    if may.user in _LIMITED:
        seen = f"{who} may not do all that gamecast does: {may.refused}"
        return Finding("warning", name, seen, "this is as `gamecast users` makes it: repeat this as the user `manager`")
    if _NO_LUA in may.refused:
        seen = "runs no Lua scripts, with which gamecast does all its work"
        advice = "load Valkey's Lua module: loadmodule …/libvalkeylua.so in valkey.conf, if it is not built in"
        return Finding("problem", name, seen, advice)
    if any(words in may.refused for words in _FORBIDDEN):
        advice = f"grant it: ACL SETUSER {may.user or 'NAME'} ~gamecast:* +@all -@admin -@dangerous +info"
    else:
        advice = "see the server's message: until this is fixed, nothing can be published through it"
    return Finding("problem", name, f"{who} is refused: {may.refused}", advice)


def replica_findings(name: str, refusing: Sequence[tuple[str, str]]) -> Finding:
    """Return that replicas do not know the user: when one takes over, all users are locked out."""
    replicas, said = ", ".join(replica for replica, _ in refusing), refusing[0][1]
    seen = f"its replica {replicas} does not let this user in ({said}): if it takes over, everybody is locked out"
    return Finding(
        "problem", name, seen, "Redis does not replicate users: gamecast users create URL… --file users.json"
    )


def refused_findings(name: str, refused: Sequence[Refused]) -> Iterator[Finding]:
    """Yield who is locked out: by a password that is not valid any more, or by a right that is lacking."""
    for each in refused:
        where = f" from {named(each.addresses)}" if each.addresses else ""
        if each.what:
            seen = f"user {each.user} was refused {each.what} in the last minute, {counted(each.times, 'time')}{where}"
            advice = "gamecast users load, if it is a user of gamecast's; else see ACL GETUSER"
        else:
            seen = (
                f"{counted(each.times, 'login')} as {each.user} failed in the last minute{where}: they are locked out"
            )
            advice = (
                "their password is not valid, perhaps because --drop-old came too early: start them with the URL that "
                "gamecast users create URL… --file users.json prints"
            )
        is_ours = each.user in (*_LIMITED, "manager", *REPLICATING)
        yield Finding("problem" if is_ours and not each.what else "warning", name, seen, advice)


def unread_findings(name: str, unread: Sequence[str]) -> Iterator[Finding]:
    """Yield what could not be read."""
    advice = "keys under gamecast: belong to gamecast: give it a Redis of its own, or remove the keys of other programs"
    hidden = [text for text in unread if "NOPERM" in text]
    for text in unread:
        if _REFUSES_NOW.search(text):
            yield Finding("problem", name, f"cannot be read: {text}", "make its server accept writes, and repeat this")
        elif text not in hidden:
            yield Finding("problem", name, f"cannot be read: {text}", advice)
    if hidden:
        seen = f"refuses to show some things to this user, so they are not examined: {hidden[0]}"
        if len(hidden) > 1:
            seen += f", and {len(hidden) - 1:,} more"
        yield Finding("warning", name, seen, "repeat this as a user who may read them")


def size_text(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
