"""``dledger security``."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.cli.commands.security_files import init, revoke, status
from broker.cli.terminal.name_arguments import checked
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import (
    DIRECTORY,
    ask_first,
    cluster_options,
    yes_option,
)
from broker.cli.terminal.output import Output, print_table, unregistered_groups
from broker.cli.terminal.program import Group
from broker.cluster_admin.accounts import (
    AccountView,
    find_accounts,
    put_account,
    remove_account,
    require_everywhere,
    require_known,
    require_new,
    reseal_accounts,
)
from broker.cluster_admin.admin_client import AdminClient, run_admin, run_on_leaders, when_led
from broker.command_error import CommandError, UsageError
from broker.exit_codes import EXIT_FAILED
from broker.security.accounts import AccountError, check_access_key
from broker.security.credentials import Credentials, CredentialsError, security_from
from broker.security.permissions import PermissionTextError, parse_permission, parse_permissions
from broker.security.tokens import make_token
from broker.security.white_list import WhiteListError, split_white_list
from store.counted import counted

_access_key = checked(check_access_key, AccountError)
_permission = checked(parse_permission, PermissionTextError)
_permissions = checked(parse_permissions, PermissionTextError)
_white_list = checked(split_white_list, WhiteListError)

NOTES = """\
Commands that change accounts need an admin: --profile FILE, $DLEDGER_PROFILE, or
$DLEDGER_ACCESS_KEY and $DLEDGER_SECRET_KEY. They exit with 1 while a group has no running node: it
keeps the accounts that it has. See docs/security.md.
"""

SECRET_BYTES = 24
HOURS_MAX = 24 * 36_500
WHITE_LIST = "Addresses from which its requests need no signature."

F = TypeVar("F", bound=Callable[..., Any])

command = Group(notes=NOTES)
command.add_command(init)
command.add_command(status)
command.add_command(revoke)
user = Group("user", help="Accounts of the cluster.")
command.add_command(user)
account_argument = click.argument("name", type=_access_key, help="Its access key.")
out_option = click.option(
    "--out",
    metavar="FILE",
    type=DIRECTORY,
    help="Write a profile with its keys instead of printing them.",
)


def account_options(command: F) -> F:
    """Options for the fields of an account, with the names of request 50; None for fields that are
    not given."""
    for name, field, metavar, kind, told in (
        ("--white-list", "whiteRemoteAddress", "ADDRS", _white_list, WHITE_LIST),
        ("--default-group", "defaultGroupPerm", "P", _permission, "Likewise."),
        ("--default-topic", "defaultTopicPerm", "P", _permission, "For all other topics."),
        ("--group", "groupPerms", "G=P,...", _permissions, "Likewise."),
        ("--topic", "topicPerms", "T=P,...", _permissions, "P is DENY, PUB, SUB or PUB|SUB."),
    ):
        command = click.option(name, field, metavar=metavar, type=kind, help=told)(command)
    return command


@user.command(
    examples="""\
  dledger security user add billing-app --topic bills=PUB --group billing=SUB --out billing.toml
"""
)
@account_argument
@account_options
@click.option("--admin", is_flag=True, help="May do everything.")
@out_option
@cluster_options
def add(
    *, name: str, admin: bool, out: Path | None, namesrv: str, output: Output, **given: str | None
) -> int:
    """Create an account with a secret key."""
    made = Credentials(name, secrets.token_urlsafe(SECRET_BYTES))
    fields = _fields(given) | {"secretKey": made.secret_key, "admin": admin}
    gone = _change(
        namesrv,
        lambda client: require_new(client, name),
        lambda client: put_account(client, name, fields),
    )
    _hand_out(made, out, output, gone)
    return _exit_code(gone)


@user.command(
    "set",
    examples="""\
  dledger security user set billing-app --topic bills=PUB,refunds=PUB
  dledger security user set billing-app --new-key --out billing.toml     replaces its secret key
""",
)
@account_argument
@account_options
@click.option("--admin", type=click.Choice(("yes", "no")), help="Whether it may do everything.")
@click.option("--new-key", is_flag=True, help="Replace its secret key.")
@out_option
@cluster_options
def change(
    *,
    name: str,
    admin: str | None,
    new_key: bool,
    out: Path | None,
    namesrv: str,
    output: Output,
    **given: str | None,
) -> int:
    """Change an account; fields that are not given stay."""
    fields = _fields(given)
    made = Credentials(name, secrets.token_urlsafe(SECRET_BYTES)) if new_key else None
    if admin is not None:
        fields["admin"] = admin == "yes"
    if made is not None:
        fields["secretKey"] = made.secret_key
    elif out is not None:
        raise UsageError("--out needs --new-key: the present secret key cannot be read")
    if not fields:
        raise UsageError("nothing is changed; name a field")
    gone = _change(
        namesrv,
        lambda client: require_everywhere(client, name),
        lambda client: put_account(client, name, fields),
    )
    if made is not None:
        _hand_out(made, out, output, gone)
    else:
        output.document({"access_key": name, **unregistered_groups(gone)})
    return _exit_code(gone)


@user.command(examples="  dledger security user remove billing-app\n")
@account_argument
@yes_option
@cluster_options
def remove(*, name: str, yes: bool, namesrv: str, output: Output) -> int:
    """Remove an account."""
    ask_first(f"Remove the account {name}", yes=yes)
    gone = _change(
        namesrv,
        lambda client: require_known(client, name),
        lambda client: remove_account(client, name),
    )
    output.document({"access_key": name, **unregistered_groups(gone)})
    return _exit_code(gone)


@user.command("list", examples="  dledger security user list\n")
@cluster_options
def list_accounts(*, namesrv: str, output: Output) -> None:
    """The accounts, without their secret keys."""
    found = run_on_leaders(namesrv, find_accounts)
    document = {name: [asdict(each) for each in each_of] for name, each_of in found.items()}
    if output.document(document):
        return
    rows: dict[AccountView, list[str]] = {}
    for name, accounts in found.items():
        for account in accounts:
            rows.setdefault(account, []).append(name)
    if not rows:
        print("there is no account; `dledger security user add NAME` makes one")
        return
    print_table(
        ("ACCESS KEY", "ADMIN", "PERMISSIONS", "WHITE LIST", "BROKER GROUPS"),
        [
            (
                account.access_key,
                "yes" if account.admin else "no",
                "all" if account.admin else account.permissions,
                account.white_list or None,
                "all" if len(names) == len(found) else ", ".join(names),
            )
            for account, names in sorted(rows.items(), key=lambda row: row[0].access_key)
        ],
    )


@command.command(
    examples="  dledger security reseal                 after a change of cluster-secret\n"
)
@cluster_options
def reseal(*, namesrv: str, output: Output) -> int:
    """Seal all secret keys with the first line of the servers' cluster-secret."""
    count, gone = run_on_leaders(namesrv, reseal_accounts)
    if not output.document({"resealed": count, **unregistered_groups(gone)}):
        print(f"{counted(count, 'secret key')} sealed again")
    return _exit_code(gone)


@command.command(
    examples="""\
  dledger security token --hours 8       for HTTP: curl -H "Authorization: Bearer $(...)" ...
"""
)
@click.option(
    "--hours",
    metavar="N",
    type=WholeRange(1, HOURS_MAX),
    default=8,
    help="Its lifetime (default: 8).",
)
@cluster_options
def token(hours: int, namesrv: str, output: Output) -> None:  # noqa: ARG001 - as all commands
    """Print a token for HTTP, made with this client's keys."""
    with UsageError.instead_of(CredentialsError):
        keys = security_from(os.environ).credentials
    if keys is None:
        raise UsageError("no account: name a profile with --profile FILE or $DLEDGER_PROFILE")
    expires_ms = int(time.time() * 1000) + hours * 3_600_000
    made = make_token(keys.access_key, keys.secret_key, expires_ms)
    if not output.document({"token": made, "expires_ms": expires_ms}):
        print(made)


def _change(
    namesrv: str,
    check: Callable[[AdminClient], Awaitable[None]],
    change: Callable[[AdminClient], Awaitable[Sequence[str]]],
) -> Sequence[str]:
    """Checks once, then makes a change that may be repeated. Returns the groups that are gone."""

    async def work(client: AdminClient) -> Sequence[str]:
        await when_led(lambda: check(client))
        return await when_led(lambda: change(client))

    return run_admin(namesrv, work)


def _exit_code(gone: Sequence[str]) -> int:
    """Warns of groups that the change has not reached."""
    if not gone:
        return 0
    print(
        f"dledger security: no node of {', '.join(gone)} is registered: its accounts stay as they "
        "are; start its nodes, and repeat this",
        file=sys.stderr,
    )
    return EXIT_FAILED


def _fields(given: Mapping[str, str | None]) -> dict[str, object]:
    """The given fields of an account."""
    return {name: value for name, value in given.items() if value is not None}


def _hand_out(made: Credentials, out: Path | None, output: Output, gone: Sequence[str]) -> None:
    """Writes or prints a secret key, which is shown only once."""
    if out is None:
        document = {
            "access_key": made.access_key,
            "secret_key": made.secret_key,
            **unregistered_groups(gone),
        }
        if not output.document(document):
            print(f'access_key = "{made.access_key}"\nsecret_key = "{made.secret_key}"')
        return
    text = f'access_key = "{made.access_key}"\nsecret_key = "{made.secret_key}"\n'
    ca = security_from(os.environ).ca
    if ca:  # the other client is to trust the same authority
        text += f"ca = {json.dumps(os.path.abspath(ca))}\n"
    try:
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o600)
            file.write(text)
    except OSError as error:
        raise CommandError(
            f"{out}: cannot be written: {error.strerror}; `set {made.access_key} --new-key` "
            "makes another key"
        ) from error
    output.document(
        {"access_key": made.access_key, "profile": str(out), **unregistered_groups(gone)}
    )
