"""``dledger security init`` and ``status``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from broker.cli.cluster_admin.admin_client import run_admin
from broker.cli.cluster_admin.cluster_view import view_groups
from broker.cli.terminal.command_error import EXIT_FAILED, CommandError, UsageError
from broker.cli.terminal.name_arguments import host_name
from broker.cli.terminal.options import (
    DEFAULT_CLUSTER,
    add_json,
    add_namesrv,
    positive,
    print_json,
    print_table,
)
from broker.config.config_file import read_exposed_config
from broker.config.node_config import GROUP_NAME, NODE_NAME
from broker.config.security_config import SecurityFiles
from broker.config.setting_checks import ConfigError
from dledger.wire.peer_identity import PeerIdentity
from store.quoting import quoted

CERTIFICATE_DAYS = 825
ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Hosts in each certificate: commands on the same machine use them."""


def add_directory_arguments(actions: Any) -> None:
    """Adds both actions to those of ``dledger security``."""
    init = actions.add_parser(
        "init", help="make the certificates and secrets of a cluster, or what of them is missing"
    )
    init.add_argument("directory", metavar="DIR")
    init.add_argument(
        "nodes",
        metavar="NODE",
        nargs="*",
        help="GROUP/NODE=HOST[,HOST...], NAMESERVER=HOST[,HOST...], or a node.toml, which names "
        "all members of its group",
    )
    init.add_argument("--cluster", help=f"its name; default: a node.toml's, else {DEFAULT_CLUSTER}")
    init.add_argument(
        "--days",
        metavar="N",
        type=positive,
        default=CERTIFICATE_DAYS,
        help=f"certificates expire after them; default: {CERTIFICATE_DAYS}",
    )
    init.add_argument(
        "--renew", action="store_true", help="replace certificates that are there, by the same CA"
    )
    add_json(init)
    status = actions.add_parser("status", help="how certificates, or running nodes, are")
    status.add_argument("directory", metavar="DIR", nargs="?")
    add_namesrv(status)
    add_json(status)


def _init(args: argparse.Namespace) -> int:
    from broker.certificates.security_directory import (  # noqa: PLC0415 - it takes a while
        SecurityDirectoryError,
        init_directory,
    )

    cluster, hosts = _named(args.nodes, args.cluster)
    files = SecurityFiles(os.path.abspath(args.directory))
    try:
        made = init_directory(files, cluster, hosts, days=args.days, renew=args.renew)
    except SecurityDirectoryError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print_json({"directory": files.directory, "cluster": cluster, **asdict(made)})
        return 0
    print(f"{files.directory}: made {', '.join(made.written) or 'nothing'}")
    if made.kept:
        print(f"left as they were: {', '.join(made.kept)}")
    print(
        "Each node needs ca.pem, cluster-secret, its own certificate and key, and admin.toml for "
        "its first start; nobody but you needs ca-key.pem.\n"
        "Then say in each node.toml, and in the NameServer's file:\n\n"
        f'[security]\ndirectory = "{files.directory}"'
    )
    return 0


def _named(nodes: list[str], cluster: str | None) -> tuple[str, dict[PeerIdentity, list[str]]]:
    """The cluster, and whom to certify with which hosts. Raises :class:`UsageError`."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in nodes:
        name, equals, hosts = each.partition("=")
        if not equals and os.path.isfile(each):
            told, members = _members(each)
            if cluster not in (None, told):
                raise UsageError(f"{each} is of the cluster {told}, and not of {cluster}")
            cluster = told
            for key, listens in members.items():
                found.setdefault(key, {}).update(dict.fromkeys(listens))
            continue
        found.setdefault(_name(name), {}).update(dict.fromkeys(_hosts(hosts)))
    cluster = cluster or DEFAULT_CLUSTER
    if not GROUP_NAME.fullmatch(cluster):
        raise UsageError(f"--cluster: {quoted(cluster)} is no name of a cluster")
    return cluster, {
        PeerIdentity(cluster, group, node): [*dict.fromkeys((*hosts, *ALWAYS))]
        for (group, node), hosts in found.items()
    }


def _members(path: str) -> tuple[str, Mapping[tuple[str, str], list[str]]]:
    try:
        config = read_exposed_config(path)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return config.cluster, {
        (config.group, node): [endpoint.host for endpoint in member]
        for node, member in config.members.items()
    }


def _name(text: str) -> tuple[str, str]:
    group, slash, node = text.rpartition("/")
    if slash and GROUP_NAME.fullmatch(group) and NODE_NAME.fullmatch(node):
        return group, node
    if not slash and GROUP_NAME.fullmatch(text):
        return "", text
    raise UsageError(
        f"{quoted(text)} is neither GROUP/NODE, such as broker-a/n0, nor the name of a NameServer"
    )


def _hosts(text: str) -> list[str]:
    try:
        return [host_name(host) for host in text.split(",") if host]
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from error


def _status(args: argparse.Namespace) -> int:
    return _status_of_nodes(args) if args.directory is None else _status_of_files(args)


def _status_of_files(args: argparse.Namespace) -> int:
    from broker.certificates.security_directory import (  # noqa: PLC0415 - it takes a while
        SecurityDirectoryError,
        look_at,
    )

    try:
        reports, problems = look_at(
            SecurityFiles(os.path.abspath(args.directory)), datetime.now(UTC)
        )
    except SecurityDirectoryError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print_json({"certificates": [asdict(each) for each in reports], "problems": problems})
    else:
        print_table(
            ("FILE", "NAMES", "HOSTS", "EXPIRES", "DAYS LEFT"),
            [
                (
                    each.file,
                    each.identity,
                    ",".join(each.hosts) or None,
                    each.expires,
                    each.days_left,
                )
                for each in reports
            ],
        )
        for each in reports:
            for problem in each.problems:
                print(f"{each.file}: {problem}")
        for problem in problems:
            print(problem)
    return EXIT_FAILED if problems or any(each.problems for each in reports) else 0


def _status_of_nodes(args: argparse.Namespace) -> int:
    nodes = [node for group in run_admin(args.namesrv, view_groups) for node in group.nodes]
    if args.json:
        print_json({"nodes": [{"node": node.node, **node.security} for node in nodes]})
    else:
        print_table(
            ("NODE", "PEERS", "TLS", "ACCESS CONTROL"),
            [
                (
                    node.node,
                    *(node.security.get(key) for key in ("peers", "tls", "access_control")),
                )
                for node in nodes
            ],
        )
    return 0


DIRECTORY_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "init": _init,
    "status": _status,
}
