"""The variables of the environment: which of them are settings, and which are none of them.

A misspelt setting must not be ignored silently, in the environment as in a file. So each variable
of this program is a setting, or one of those that are named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from broker.config.setting import Setting
from broker.config.setting_checks import nearest, one_line
from broker.config.sources import Problem
from broker.security.credentials import (
    ACCESS_KEY_VARIABLE,
    CA_VARIABLE,
    CLUSTERS_VARIABLE,
    PROFILE_VARIABLE,
    SECRET_KEY_VARIABLE,
)

PREFIX = "DLEDGER_"
OF_TESTS = "DLEDGER_TEST_"
"""The prefix of variables that this project's tests read."""

OF_COMMANDS = frozenset(
    {
        ACCESS_KEY_VARIABLE,
        CA_VARIABLE,
        CLUSTERS_VARIABLE,
        PROFILE_VARIABLE,
        SECRET_KEY_VARIABLE,
    }
)
"""Commands and programs that use a cluster read these."""

_OF_KUBERNETES = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT\w*|PORT_[0-9]+_(TCP|UDP|SCTP)\w*)=.*|\w+_PORT=\w+://.*"
)
"""What Kubernetes tells containers about a service called `dledger`, unless `enableServiceLinks` is
off. Nobody typed these."""

WHERE_THEY_STAND = "`dledger config init` names all of them"


def server_variables(environ: Mapping[str, str]) -> list[str]:
    """The variables that a server takes for settings, misspelt ones too. An empty one counts as
    unset."""
    return [
        name
        for name, text in environ.items()
        if name.startswith(PREFIX)
        and text
        and name not in OF_COMMANDS
        and not name.startswith(OF_TESTS)
    ]


def misspelt_variables(
    environ: Mapping[str, str], settings: Iterable[tuple[str, Setting]]
) -> Iterator[Problem]:
    """A problem for each variable that is not a setting. ``settings`` has the prefix of each."""
    known = [*settings]
    for name in server_variables(environ):
        if any(one.path_set_by(name, prefix) for prefix, one in known):
            continue
        if _OF_KUBERNETES.fullmatch(f"{name}={environ[name]}"):
            continue
        # Compared without what all begin with, which would make any two similar.
        names = [one.variable(prefix).removeprefix(PREFIX) for prefix, one in known]
        near = nearest(name.removeprefix(PREFIX), names)
        hint = f"did you mean ${PREFIX}{near}?" if near else WHERE_THEY_STAND
        yield Problem(f"${one_line(name)}", f"is not a setting; {hint}")
