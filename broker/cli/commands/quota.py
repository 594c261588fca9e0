"""``dledger quota``: the rates at which accounts, topics and clients may send and receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.terminal.numbers import WholeRange, byte_size
from broker.cli.terminal.options import broker_group_option, cluster_options
from broker.cli.terminal.output import Output, print_table
from broker.cli.terminal.program import Group
from broker.cluster_admin.admin_client import run_admin
from broker.cluster_admin.quotas import put_quota, quotas_by_group
from broker.command_error import UsageError
from broker.quotas.quota import EACH, ENTITY_TYPES, Entity, Quota, QuotaError, parse_entity

F = TypeVar("F", bound=Callable[..., Any])

command = Group()


def entity_arguments(command: F) -> F:
    """``TYPE NAME``."""
    command = click.argument("name")(command)
    return click.argument("type_", metavar="TYPE", type=click.Choice(ENTITY_TYPES))(command)


@UsageError.instead_of(QuotaError)
def _entity(type_: str, name: str) -> Entity:
    return parse_entity(Entity(type_, name).setting)


def _rate(name: str, kind: Callable[[str], int] | WholeRange, unit: str) -> Callable[[F], F]:
    metavar = "BYTES" if kind is byte_size else "N"
    return click.option(name, type=kind, metavar=metavar, help=f"{unit} per second; 0: no limit.")


@command.command(
    "set",
    examples="""\
  dledger quota set topic clicks --produce-bytes 1MiB
  dledger quota set account reader1 --consume-messages 500
  dledger quota set client '*' --produce-messages 100     each client without its own quota
""",
)
@entity_arguments
@_rate("--produce-messages", WholeRange(0), "Messages sent")
@_rate("--produce-bytes", byte_size, "Bytes of bodies sent, such as 512KiB,")
@_rate("--consume-messages", WholeRange(0), "Messages delivered")
@_rate("--consume-bytes", byte_size, "Bytes of messages delivered, such as 2MiB,")
@broker_group_option
@cluster_options
def put(
    *, type_: str, name: str, group: str | None, namesrv: str, output: Output, **rates: int | None
) -> None:
    """Set the quota of an account, a topic or a client id; '*': each without its own quota.

    Beyond a quota, answers come later; nothing is dropped. Each node counts alone. The whole
    quota is replaced: a rate that is not given has no limit.
    """
    quota = Quota(**{name: rate or 0 for name, rate in rates.items()})
    if not any(quota):
        raise UsageError("no rate is limited; name one, or remove the quota with `unset`")
    _change(_entity(type_, name), quota, group, namesrv, output)


@command.command(examples="  dledger quota unset topic clicks\n")
@entity_arguments
@broker_group_option
@cluster_options
def unset(*, type_: str, name: str, group: str | None, namesrv: str, output: Output) -> None:
    """Remove a quota."""
    _change(_entity(type_, name), Quota(), group, namesrv, output)


def _change(entity: Entity, quota: Quota, group: str | None, namesrv: str, output: Output) -> None:
    groups = run_admin(namesrv, lambda admin: put_quota(admin, group, entity, quota))
    document = {**entity._asdict(), **quota._asdict(), "groups": groups}
    if not output.document(document):
        for each in groups:
            print(f"{each} {entity.type} {entity.name} {str(quota) or 'has no quota'}")


@command.command("list", examples="  dledger quota list\n")
@broker_group_option
@cluster_options
def list_quotas(group: str | None, namesrv: str, output: Output) -> None:
    """The quotas of running groups."""
    found = run_admin(namesrv, lambda admin: quotas_by_group(admin, group))
    quotas = [
        {"group": name, **entity._asdict(), **quota._asdict()} for name, entity, quota in found
    ]
    if output.document({"quotas": quotas}):
        return
    rows = [
        (name, entity.type, entity.name, *(rate or "-" for rate in quota))
        for name, entity, quota in found
    ]
    print_table(
        (
            "GROUP",
            "TYPE",
            "NAME",
            "MESSAGES IN/S",
            "BYTES IN/S",
            "MESSAGES OUT/S",
            "BYTES OUT/S",
        ),
        rows,
    )
    if any(entity.name == EACH for _, entity, _ in found):
        print(f"{EACH}: each without its own quota")
