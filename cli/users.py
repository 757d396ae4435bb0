"""``gamecast users``: the Redis users of a network, each with the permissions that its role needs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from adapters.redis.users import (
    ALL,
    FINDER,
    REPLICATING,
    ROLES,
    RedisUser,
    add_passwords,
    create_users,
    drop_other_passwords,
    found_by,
    load_functions,
    may_change,
    new_users,
    revoke_users,
    save_users,
    users_of,
)
from cli.commands import Group
from cli.token import write_keys
from gamecast.errors import UsageError

_SERVERS = click.argument("servers", nargs=-1, required=True, metavar="URL…")
_FILE = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Password file, JSON: {role: password}. Keep it secret.",
)
_ROLES = click.option(
    "--role", "roles", type=click.Choice(tuple(ROLES)), multiple=True, help="Only this role.  [default: all]"
)


@click.group(cls=Group)
def users() -> None:
    """Make and change the Redis users of a network. The users are the same on all of its servers.

    Give the URLs of all nodes of the network: each command also reaches their replicas and sentinels, which Redis
    does not give users. Each URL needs a user who may change users: the default user, or one that you made. A
    game server connects as `subscriber` or `publisher`. A gateway connects as `gateway`, with `watcher` for its
    dashboard. Managers and nodes connect as `manager`, relays as `relay`. `operator` ends scripts and clients that
    block a server. docs/security.md says what each user could do at worst. Needs Redis 7 or later.

    \b
    Example:
      gamecast users create redis://:secret@10.0.0.1 redis://:secret@10.0.0.2 --file users.json
      gamecast users show redis://:secret@10.0.0.1 redis://:secret@10.0.0.2
    """


@users.command()
@_SERVERS
@_FILE
@_ROLES
def create(*, servers: tuple[str, ...], file: Path, roles: tuple[str, ...]) -> None:
    """Create users, and load the functions that they call. Passwords come from the file, or are new.

    So you can create the same users on a server that you add later, a replica too. Existing users of these names are
    replaced. Where replicas may take over, they follow their masters as the user `replica`, and sentinels watch them as
    `sentinel`, from then on. Prints each user's URL of the first server.

    Exit status: 0, 2 for wrong use, 3 if a server is unavailable or too old.
    """
    known = _read(file) if file.exists() else {}
    made = {role: known.get(role) or user for role, user in new_users(roles or ROLES).items()}
    _write(file, {**known, **made})
    if not roles and asyncio.run(may_change(servers)):
        made |= {role: known.get(role) or user for role, user in new_users((*REPLICATING, FINDER)).items()}
        _write(file, {**known, **made})
    _run(create_users(servers, made), servers)
    _tell(made, servers[0], made.get(FINDER))


@users.command()
@_SERVERS
def load(*, servers: tuple[str, ...]) -> None:
    """Load the functions of this version, before clients of this version connect.

    Functions of other versions stay, and the users keep their passwords.

    Exit status: 0, 2 for wrong use, 3 if a server is unavailable or too old.
    """
    _run(load_functions(servers), servers)


@users.command()
@_SERVERS
@_FILE
@_ROLES
@click.option("--drop-old", is_flag=True, help="Instead, remove all passwords that are not in the file.")
def rotate(*, servers: tuple[str, ...], file: Path, roles: tuple[str, ...], drop_old: bool) -> None:
    """Give each user a new password, in two steps.

    The first call adds a new password beside the old one. Then reconfigure or restart the clients. A second call with
    --drop-old removes the old password, and closes connections that used it.

    Exit status: 0, 2 for wrong use, 3 if a server is unavailable or too old.
    """
    known = _read(file)
    if strange := [role for role in roles if role not in known]:
        raise UsageError(f"{file} has no user {strange[0]!r}")
    chosen = {role: known[role] for role in roles or known}
    if drop_old:
        _run(drop_other_passwords(servers, chosen), servers)
        return
    made = new_users(chosen)
    _run(add_passwords(servers, made), servers)
    _write(file, {**known, **made})
    _tell(made, servers[0], {**known, **made}.get(FINDER))


@users.command()
@_SERVERS
@click.option("--role", "roles", type=click.Choice(tuple(ROLES)), multiple=True, required=True, help="Role.")
def revoke(*, servers: tuple[str, ...], roles: tuple[str, ...]) -> None:
    """Disable users, and close their connections. `create` enables them again.

    Exit status: 0, 2 for wrong use, 3 if a server is unavailable or too old.
    """
    _run(revoke_users(servers, roles), servers)


@users.command()
@_SERVERS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def show(*, servers: tuple[str, ...], as_json: bool) -> None:
    """Show which users each server has, and whether they match this version.

    Exit status: 0 if all users exist and match, 1 if not, 2 for wrong use, 3 if a server is unavailable.
    """
    states = asyncio.run(users_of(servers))
    if as_json:
        fields = "server", "role", "is_there", "is_on", "passwords", "is_current"
        click.echo(orjson.dumps([{name: getattr(state, name) for name in fields} for state in states]))
    else:
        table = Table("server", "user", "state", "passwords", box=None)
        for state in states:
            said = "let in" if state.is_on else "not let in"
            said += "" if state.is_current else ", lacks rights or functions of this version: gamecast users load"
            table.add_row(state.server, state.role, said if state.is_there else "not there", str(state.passwords))
        Console().print(table)
    if not all(state.is_on and state.is_current for state in states):
        raise SystemExit(1)


def _tell(users: Mapping[str, RedisUser], server: str, finder: RedisUser | None) -> None:
    """Print the URL of each user who connects; replicas and sentinels have been told theirs."""
    for role, user in users.items():
        if role in ROLES:
            click.echo(f"{role:<10} {user.url(found_by(server, finder))}")


def _read(file: Path) -> dict[str, RedisUser]:
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the password file: {error}") from error
    except ValueError:
        raise UsageError(f"{file} is not a password file: it is not JSON") from None
    if not isinstance(document, dict) or not all(
        role in ALL and isinstance(password, str) and password for role, password in document.items()
    ):
        raise UsageError(f'{file} is not a password file, such as {{"publisher": "…"}}')
    return {role: RedisUser(role, password) for role, password in document.items()}


def _write(file: Path, known: dict[str, RedisUser]) -> None:
    document = {role: user.password for role, user in known.items()}
    write_keys(file, orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), 0o600)


def _run(work: Coroutine[Any, Any, None], servers: Sequence[str]) -> None:
    async def change_and_save() -> list[str]:
        await work
        return await save_users(servers)

    for forgotten in asyncio.run(change_and_save()):
        click.echo(forgotten, err=True)
