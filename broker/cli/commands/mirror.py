"""``dledger mirror``: copies topics of another cluster into this one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import click

from broker.cli.mirror.topic_mirror import PRODUCER, TopicMirror, all_or_none
from broker.cli.terminal.client_session import run_session
from broker.cli.terminal.name_arguments import name_servers, topic_name
from broker.cli.terminal.options import cluster_options, profiles
from broker.cli.terminal.output import Output
from broker.cli.terminal.program import Command
from broker.cli.terminal.progress import Progress
from broker.cli.terminal.time_arguments import TIME, TIME_HELP, place_in_time
from broker.client.producer.producer import Producer
from broker.cluster_admin.admin_client import open_admin
from broker.command_error import UsageError
from broker.security.credentials import NO_SECURITY, open_profile, security_from
from store.counted import counted
from store.quoting import quoted

EXAMPLES = """\
  dledger mirror 10.1.0.1:9876 orders bills --namesrv 10.2.0.1:9876
  dledger mirror orders bills --source 10.1.0.1:9876 --namesrv 10.2.0.1:9876
  dledger mirror orders --source-profile east --profile west --once
"""
NOTES = """\
The topics must exist here, with at least as many queues as in the source, also when the source gets
more. Nobody else may send to them. The command may be stopped and repeated: it continues after the
last copy in each queue. A message keeps its body, keys, tags and properties; MIRROR_ORIGIN names
its first place. While a cluster is unavailable it waits; where that cannot help it exits with 1.
"""


def _source_or_topic(text: str) -> str:
    """The type of an argument that is a NameServer's address or a topic: only addresses have a
    colon."""
    return name_servers(text) if ":" in text else topic_name(text)


@click.command(cls=Command, examples=EXAMPLES, notes=NOTES)
@click.argument(
    "names",
    metavar="[SOURCE_NAMESRV] TOPIC...",
    type=_source_or_topic,
    nargs=-1,
    required=True,
    help="The NameServer of the source cluster, if no option names it, and the topics.",
)
@click.option(
    "--source", metavar="ADDR", type=name_servers, help="NameServer of the source cluster."
)
@click.option(
    "--source-profile",
    metavar="NAME|FILE",
    shell_complete=profiles,
    help="The account there, which may name the NameServer.",
)
@click.option(
    "--from",
    "--since",
    "start",
    metavar=f"earliest|latest|{TIME}",
    type=place_in_time,
    default="earliest",
    help="Where queues begin that have no copy at the start of the command: earliest (default), "
    f"latest, or a time; {TIME_HELP}.",
)
@click.option("--once", is_flag=True, help="Copy only the present messages of the source.")
@cluster_options
def command(
    *,
    names: tuple[str, ...],
    source: str | None,
    source_profile: str | None,
    start: str | int,
    once: bool,
    namesrv: str,
    output: Output,
) -> int:
    """Copy topics of another cluster into this one, each queue in order."""
    topics, source = _topics_and_source(names, source)
    return run_session(
        "mirror", lambda: _mirror(topics, source, source_profile, start, once, namesrv, output)
    )


def _topics_and_source(
    names: tuple[str, ...], option: str | None
) -> tuple[tuple[str, ...], str | None]:
    """The topics, and the NameServer of the source if the arguments or ``--source`` name it."""
    if ":" not in names[0]:
        source, topics = option, names
    elif option is None:
        source, topics = names[0], names[1:]
    else:
        raise UsageError("the first argument and --source both name the source; omit one")
    if not topics:
        raise UsageError("no topic is named; give those to copy after the source")
    for topic in topics:
        if ":" in topic:
            raise UsageError(f"{quoted(topic)} is not a topic; the source is the first argument")
    return topics, source


async def _mirror(  # noqa: PLR0917 - the command's own parameters
    topics: Sequence[str],
    source: str | None,
    source_profile: str | None,
    start: str | int,
    once: bool,
    namesrv: str,
    output: Output,
) -> int:
    security = NO_SECURITY
    if source_profile is not None:
        profile = open_profile(source_profile)
        source, security = source or profile.namesrv, profile.security
    if not source:
        raise UsageError(
            "the source is missing: give its NameServer as the first argument or as --source, "
            "or a --source-profile that names one"
        )
    counts = dict.fromkeys(topics, 0)
    progress = Progress("messages copied")

    def copied(topic: str, count: int) -> None:
        counts[topic] += count
        progress.add(count)

    with progress:
        async with (
            open_admin(source, security) as there,
            open_admin(namesrv, security_from(os.environ)) as here,
            Producer(namesrv, PRODUCER) as producer,
        ):
            mirrors = [
                TopicMirror(there, here, producer, topic, start=start, count=partial(copied, topic))
                for topic in counts
            ]
            await all_or_none([each.copy() if once else each.follow() for each in mirrors])
    if not output.document({"source": source, "topics": counts}):
        for topic, count in counts.items():
            print(f"{topic}: {counted(count, 'message')} copied")
    return 0
