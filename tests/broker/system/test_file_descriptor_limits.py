"""How descriptors are shared out."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits import RemotingLimits
from broker.system.file_descriptor_limits import (
    DescriptorLimits,
    connections_of_broker,
    connections_of_name_server,
)

LIMITS = DescriptorLimits()


@given(st.integers(64, 1 << 21))
def test_files_and_connections_fit_into_the_limit(files: int) -> None:
    remoting, http, peers = connections_of_broker(files, LIMITS)
    for_files = min(LIMITS.broker_files, files // 2)
    assert remoting.connections_max + http + peers + for_files <= files
    assert min(remoting.connections_max, http, peers) >= files // 8 or files > 1024
    assert connections_of_name_server(files, LIMITS).connections_max <= files - min(32, files // 2)


def test_of_a_usual_limit_clients_get_what_they_may_have_at_most() -> None:
    usual = RemotingLimits().connections_max
    assert connections_of_broker(65_536, LIMITS).remoting.connections_max == usual
    assert connections_of_name_server(65_536, LIMITS).connections_max == usual


RAISES = """
import resource, sys
from broker.system.file_descriptor_limits import DescriptorLimits, raise_file_limit
soft, hard, most = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
raised = raise_file_limit(DescriptorLimits(files_max=most))
print(raised, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("soft", "hard", "most", "told"),
    [
        (256, 1000, 5000, "1000 1000 1000"),
        (256, 1000, 700, "700 700 1000"),
        (800, 1000, 700, "800 800 1000"),
        (300, 300, 5000, "300 300 300"),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(
    soft: int, hard: int, most: int, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAISES, str(soft), str(hard), str(most)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == told.split()
