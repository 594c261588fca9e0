"""The fixtures of tests that drive a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.cluster.running_cluster import RunningCluster, start_cluster
from tests.console.browsers import WAIT_MS, browser_path, complaints, in_a_thread, launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser_path()
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page without cookies. At the end the browser must have reported no error."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
    context.set_default_timeout(WAIT_MS)
    made = context.new_page()
    found = complaints(made)
    yield made
    context.close()
    assert not found


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster for all tests of a module."""
    browser_path()
    directory = tmp_path_factory.mktemp("shared") / "data"
    running = in_a_thread(lambda: start_cluster(directory))
    yield running
    in_a_thread(running.stop)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """A cluster whose nodes may be killed."""
    browser_path()
    running = in_a_thread(lambda: start_cluster(tmp_path / "data"))
    yield running
    in_a_thread(running.stop)


def leader_of(cluster: RunningCluster) -> str:
    return in_a_thread(cluster.leader)


def console_of(cluster: RunningCluster, node: str, scheme: str = "http") -> str:
    """The address of the console that this node serves."""
    return f"{scheme}://{cluster.config(node).own.http}/console/"


@pytest.fixture
def address(shared_cluster: RunningCluster) -> str:
    """The address of the console of a follower."""
    leader = leader_of(shared_cluster)
    return console_of(shared_cluster, next(each for each in shared_cluster.nodes if each != leader))
