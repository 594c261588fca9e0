"""One Spark session for all tests: its start takes longer than all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

import spark
from tests.spark.snapshots import write_group

ROOT = str(Path(__file__).parents[2])
SHORT_LIVED = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The environment of a JVM that runs for a minute: the second compiler, and threads that collect
garbage, take a third of its CPU time and never give it back."""


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two executor processes of one core each, as on a cluster of two machines."""
    workers = str(tmp_path_factory.mktemp("workers"))
    settings = {"PYTHONPATH": ROOT, "SPARK_WORKER_DIR": workers, **SHORT_LIVED}
    interrupt = signal.getsignal(signal.SIGINT)
    with mock.patch.dict(os.environ, settings):
        spark.use_java()
        started = (
            SparkSession.builder.master("local-cluster[2,1,1024]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.executorEnv.PYTHONPATH", ROOT)
            .config("spark.executor.memory", "1g")
            .config("spark.task.maxFailures", "1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        signal.signal(signal.SIGINT, interrupt)  # Spark leaves its own
        spark.register(started)
        yield started
        started.stop()


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Intact snapshots of three replicas. Tests must not change them."""
    root = tmp_path_factory.mktemp("group")
    write_group(root)
    return root
