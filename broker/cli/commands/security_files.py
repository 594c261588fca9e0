"""``dledger security init`` and ``status``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import click

from broker.cli.terminal.name_arguments import host_name
from broker.cli.terminal.numbers import WholeRange
from broker.cli.terminal.options import (
    DEFAULT_CLUSTER,
    PATH,
    cluster_options,
    json_option,
)
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Command
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.cluster_view import view_groups
from broker.command_error import CommandError, UsageError
from broker.config.config_file import read_exposed_config
from broker.config.node_config import GROUP_NAME, NODE_NAME
from broker.config.security_config import SecurityFiles
from broker.config.setting_checks import ConfigError
from broker.exit_codes import EXIT_FAILED
from dledger.wire.peer_identity import PeerIdentity
from store.quoting import quoted

CERTIFICATE_DAYS = 825
DAYS_MAX = 36_500
ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Hosts in each certificate, for commands on the same machine."""


@click.command(
    cls=Command,
    examples="""\
  dledger security init security broker-a/n0=10.0.0.1 broker-a/n1=10.0.0.2 broker-a/n2=10.0.0.3 \\
                   namesrv=10.0.0.9       authority, certificates, cluster secret, first admin
  dledger security init security node.toml --renew          new certificates for all its members
""",
)
@click.argument("directory", metavar="DIR", type=PATH)
@click.argument(
    "nodes",
    metavar="[NODE]...",
    nargs=-1,
    help="GROUP/NODE=HOST[,HOST...], NAMESERVER=HOST[,HOST...], or a node.toml, for all "
    "members of its group.",
)
@click.option("--cluster", help=f"Its name; default: a node.toml's, else {DEFAULT_CLUSTER}.")
@click.option(
    "--days",
    metavar="N",
    type=WholeRange(1, DAYS_MAX),
    default=CERTIFICATE_DAYS,
    help=f"The lifetime of certificates (default: {CERTIFICATE_DAYS}).",
)
@click.option("--renew", is_flag=True, help="Replace existing certificates, by the same CA.")
@json_option
def init(
    *,
    directory: str,
    nodes: tuple[str, ...],
    cluster: str | None,
    days: int,
    renew: bool,
    output: Output,
) -> None:
    """Make the certificates and secrets of a cluster, or the missing ones."""
    from broker.certificates.security_directory import (  # noqa: PLC0415 - it takes a while
        SecurityDirectoryError,
        init_directory,
    )

    cluster, hosts = _named(nodes, cluster)
    files = SecurityFiles(os.path.abspath(directory))
    with CommandError.instead_of(SecurityDirectoryError):
        made = init_directory(files, cluster, hosts, days=days, renew=renew)
    if output.document({"directory": files.directory, "cluster": cluster, **asdict(made)}):
        return
    print(f"{files.directory}: made {', '.join(made.written) or 'nothing'}")
    if made.kept:
        print(f"kept: {', '.join(made.kept)}")
    print(
        "Each node needs ca.pem, cluster-secret, its own certificate and key, and admin.toml for "
        "its first start; only you need ca-key.pem.\n"
        "Then add to each node.toml, and to the NameServer's file:\n\n"
        f'[security]\ndirectory = "{files.directory}"'
    )


@click.command(
    cls=Command,
    examples="""\
  dledger security revoke security broker-a/n3       then copy the file `revoked` to each node
""",
)
@click.argument("directory", metavar="DIR", type=PATH)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, help="GROUP/NODE.")
@json_option
def revoke(*, directory: str, nodes: tuple[str, ...], output: Output) -> None:
    """Revoke the certificates of lost nodes: other nodes refuse them."""
    from broker.certificates import security_directory  # noqa: PLC0415 - it takes a while

    names = ["/".join(filter(None, _name(each))) for each in nodes]
    _require_directory(directory)
    files = SecurityFiles(os.path.abspath(directory))
    with CommandError.instead_of(security_directory.SecurityDirectoryError):
        serials = security_directory.revoke(files, names, datetime.now(UTC))
    if output.document({"file": files.revoked, "serials": serials}):
        return
    print(f"{files.revoked}: {', '.join(serials)}")
    print("Copy it into the security directory of each node: it also ends open connections.")


@click.command(
    cls=Command,
    examples="""\
  dledger security status security        certificates: when they expire, and what is wrong
  dledger security status                 the security settings of the running nodes
""",
)
@click.argument("directory", metavar="[DIR]", type=PATH, required=False)
@cluster_options
def status(*, directory: str | None, namesrv: str, output: Output) -> int:
    """Check certificates, or show the security of running nodes."""
    if directory is None:
        return _status_of_nodes(namesrv, output)
    _require_directory(directory)
    return _status_of_files(directory, output)


def _require_directory(path: str) -> None:
    """Raises :class:`UsageError`."""
    if not os.path.isdir(path):
        raise UsageError(f"{path} is no directory; `dledger security init` makes one")


def _named(
    nodes: tuple[str, ...], cluster: str | None
) -> tuple[str, dict[PeerIdentity, list[str]]]:
    """The cluster, and the nodes to certify with their hosts. Raises :class:`UsageError`."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in nodes:
        name, equals, hosts = each.partition("=")
        if not equals and os.path.isfile(each):
            told, members = _members(each)
            if cluster not in (None, told):
                raise UsageError(f"{each} is of the cluster {told}, not of {cluster}")
            cluster = told
            for key, listens in members.items():
                found.setdefault(key, {}).update(dict.fromkeys(listens))
            continue
        found.setdefault(_name(name), {}).update(dict.fromkeys(_hosts(hosts)))
    cluster = cluster or DEFAULT_CLUSTER
    if not GROUP_NAME.fullmatch(cluster):
        raise UsageError(f"--cluster: {quoted(cluster)} is not the name of a cluster")
    return cluster, {
        PeerIdentity(cluster, group, node): [*dict.fromkeys((*hosts, *ALWAYS))]
        for (group, node), hosts in found.items()
    }


@UsageError.instead_of(ConfigError)
def _members(path: str) -> tuple[str, Mapping[tuple[str, str], list[str]]]:
    config = read_exposed_config(path)
    return config.cluster, {
        (config.group, node): [endpoint.host for endpoint in member.endpoints.values()]
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


@UsageError.instead_of(ValueError)
def _hosts(text: str) -> list[str]:
    return [host_name(host) for host in text.split(",") if host]


def _status_of_files(directory: str, output: Output) -> int:
    from broker.certificates.security_directory import (  # noqa: PLC0415 - it takes a while
        SecurityDirectoryError,
        look_at,
    )

    with CommandError.instead_of(SecurityDirectoryError):
        reports, problems = look_at(SecurityFiles(os.path.abspath(directory)), datetime.now(UTC))
    document = {"certificates": [asdict(each) for each in reports], "problems": problems}
    if not output.document(document):
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


def _status_of_nodes(namesrv: str, output: Output) -> int:
    nodes = [node for group in run_admin(namesrv, view_groups) for node in group.nodes]
    document = {"nodes": [{"node": node.node, **node.security} for node in nodes]}
    if not output.document(document):
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
