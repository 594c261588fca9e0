"""``dledger security``."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
from dataclasses import asdict
from pathlib import Path

from broker.cli.cluster_admin.accounts import (
    AccountView,
    find_accounts,
    no_account,
    put_account,
    remove_account,
    reseal_accounts,
)
from broker.cli.cluster_admin.admin_client import AdminClient, run_on_leaders
from broker.cli.commands.security_files import DIRECTORY_ACTIONS, add_directory_arguments
from broker.cli.terminal.command_error import CommandError, UsageError
from broker.cli.terminal.name_arguments import checked
from broker.cli.terminal.options import (
    add_json,
    add_namesrv,
    positive,
    print_json,
    print_table,
)
from broker.security.accounts import AccountError, check_access_key
from broker.security.credentials import Credentials, CredentialsError, security_from
from broker.security.permissions import PermissionTextError, parse_permission, parse_permissions
from broker.security.tokens import make_token
from broker.security.white_list import WhiteListError, split_white_list

_access_key = checked(check_access_key, AccountError)
_permission = checked(parse_permission, PermissionTextError)
_permissions = checked(parse_permissions, PermissionTextError)
_white_list = checked(split_white_list, WhiteListError)

EXAMPLES = """\
  dledger security init security broker-a/n0=10.0.0.1 broker-a/n1=10.0.0.2 broker-a/n2=10.0.0.3 \\
                   namesrv=10.0.0.9       authority, certificates, cluster secret, first admin
  dledger security init security node.toml --renew          new certificates for all its members
  dledger security status security        until when they last, and what is wrong with them
  dledger security status                 how the running nodes are set
  dledger security user add billing-app --topic bills=PUB --group billing=SUB --out billing.toml
  dledger security user set billing-app --topic bills=PUB,refunds=PUB
  dledger security user set billing-app --new-key --out billing.toml     replaces its secret key
  dledger security user list
  dledger security user remove billing-app
  dledger security reseal                 after a change of cluster-secret
  dledger security token --hours 8       for HTTP: curl -H "Authorization: Bearer $(...)" ...

Those that change accounts need an admin: --profile FILE, $DLEDGER_PROFILE, or
$DLEDGER_ACCESS_KEY and $DLEDGER_SECRET_KEY. docs/security.md tells the rest.
"""

SECRET_BYTES = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_directory_arguments(actions)
    user = actions.add_parser("user", help="accounts of the cluster")
    add_user_arguments(user)
    token = actions.add_parser("token", help="print a token for HTTP, made of this client's keys")
    token.add_argument(
        "--hours", metavar="N", type=positive, default=8, help="it expires after them; default: 8"
    )
    add_namesrv(token)
    reseal = actions.add_parser(
        "reseal", help="seal all secret keys with the first line of the servers' cluster-secret"
    )
    add_namesrv(reseal)
    add_json(reseal)


def add_user_arguments(parser: argparse.ArgumentParser) -> None:
    """Of ``dledger security user``."""
    actions = parser.add_subparsers(dest="user_action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="make an account, and a secret key for it")
    change = actions.add_parser("set", help="change an account; what is not named stays")
    remove = actions.add_parser("remove", help="remove an account")
    listing = actions.add_parser("list", help="the accounts, without their secret keys")
    for action in (add, change, remove):
        action.add_argument("name", metavar="NAME", type=_access_key, help="its access key")
    for action in (add, change):
        action.add_argument(
            "--topic", metavar="T=P,...", type=_permissions, help="P is DENY, PUB, SUB or PUB|SUB"
        )
        action.add_argument("--group", metavar="G=P,...", type=_permissions, help="likewise")
        action.add_argument("--default-topic", metavar="P", type=_permission, help="of all others")
        action.add_argument("--default-group", metavar="P", type=_permission, help="likewise")
        action.add_argument(
            "--white-list",
            metavar="ADDRS",
            type=_white_list,
            help="addresses from which its requests need no signature",
        )
        action.add_argument(
            "--out", metavar="FILE", type=Path, help="write a profile with its keys, do not print"
        )
    add.add_argument("--admin", action="store_true", help="may do everything")
    change.add_argument("--admin", choices=("yes", "no"), help="whether it may do everything")
    change.add_argument("--new-key", action="store_true", help="replace its secret key")
    for action in (add, change, remove, listing):
        add_namesrv(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    if args.action in DIRECTORY_ACTIONS:
        return DIRECTORY_ACTIONS[args.action](args)
    if args.action == "token":
        return _token(args)
    if args.action == "reseal":
        return _reseal(args)
    actions = {"add": _add, "set": _set, "remove": _remove, "list": _list}
    return actions[args.user_action](args)


def _add(args: argparse.Namespace) -> int:
    async def add(admin: AdminClient) -> None:
        for accounts in (await find_accounts(admin)).values():
            if args.name in {each.access_key for each in accounts}:
                raise CommandError(
                    f"there is an account {args.name}; `dledger security user set` changes it"
                )
        await put_account(admin, args.name, fields)

    made = Credentials(args.name, secrets.token_urlsafe(SECRET_BYTES))
    fields = _fields(args) | {"secretKey": made.secret_key, "admin": args.admin}
    run_on_leaders(args.namesrv, add)
    _hand_out(args, made)
    return 0


def _set(args: argparse.Namespace) -> int:
    async def change(admin: AdminClient) -> None:
        found = (await find_accounts(admin)).values()
        if not any(args.name in {each.access_key for each in accounts} for accounts in found):
            raise no_account(args.name)
        await put_account(admin, args.name, fields)

    fields = _fields(args)
    made = Credentials(args.name, secrets.token_urlsafe(SECRET_BYTES)) if args.new_key else None
    if args.admin is not None:
        fields["admin"] = args.admin == "yes"
    if made is not None:
        fields["secretKey"] = made.secret_key
    elif args.out is not None:
        raise UsageError("--out needs --new-key: nobody tells the secret key that there is")
    if not fields:
        raise UsageError("nothing is changed; name what shall be")
    run_on_leaders(args.namesrv, change)
    if made is not None:
        _hand_out(args, made)
    elif args.json:
        print_json({"access_key": args.name})
    return 0


def _remove(args: argparse.Namespace) -> int:
    run_on_leaders(args.namesrv, lambda admin: remove_account(admin, args.name))
    if args.json:
        print_json({"access_key": args.name})
    return 0


def _list(args: argparse.Namespace) -> int:
    found = run_on_leaders(args.namesrv, find_accounts)
    if args.json:
        print_json({name: [asdict(each) for each in each_of] for name, each_of in found.items()})
        return 0
    rows: dict[AccountView, list[str]] = {}
    for name, accounts in found.items():
        for account in accounts:
            rows.setdefault(account, []).append(name)
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
    return 0


def _reseal(args: argparse.Namespace) -> int:
    count = run_on_leaders(args.namesrv, reseal_accounts)
    if args.json:
        print_json({"resealed": count})
    else:
        print(f"{count} secret key(s) sealed anew")
    return 0


def _token(args: argparse.Namespace) -> int:
    try:
        keys = security_from(os.environ).credentials
    except CredentialsError as error:
        raise CommandError(str(error)) from error
    if keys is None:
        raise UsageError("whose token? Name a profile with --profile FILE or $DLEDGER_PROFILE")
    expires_ms = int(time.time() * 1000) + args.hours * 3_600_000
    print(make_token(keys.access_key, keys.secret_key, expires_ms))
    return 0


def _fields(args: argparse.Namespace) -> dict[str, object]:
    """What is named of an account, in the names of request 50."""
    given = {
        "topicPerms": args.topic,
        "groupPerms": args.group,
        "defaultTopicPerm": args.default_topic,
        "defaultGroupPerm": args.default_group,
        "whiteRemoteAddress": args.white_list,
    }
    return {name: value for name, value in given.items() if value is not None}


def _hand_out(args: argparse.Namespace, made: Credentials) -> None:
    """The one time that a secret key is told."""
    if args.out is None:
        if args.json:
            print_json({"access_key": made.access_key, "secret_key": made.secret_key})
        else:
            print(f'access_key = "{made.access_key}"\nsecret_key = "{made.secret_key}"')
        return
    text = f'access_key = "{made.access_key}"\nsecret_key = "{made.secret_key}"\n'
    ca = security_from(os.environ).ca
    if ca:  # whom this client believes, the other is to believe too
        text += f"ca = {json.dumps(os.path.abspath(ca))}\n"
    try:
        fd = os.open(args.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o600)
            file.write(text)
    except OSError as error:
        raise CommandError(
            f"{args.out}: cannot be written: {error.strerror}; `set {made.access_key} --new-key` "
            "makes another key"
        ) from error
    if args.json:
        print_json({"access_key": made.access_key, "profile": str(args.out)})
