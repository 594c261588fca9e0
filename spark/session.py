"""The Spark session of a command: the active one, or a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.errors import JobError, last_line
from spark.java import use_java

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java only distributes tasks here. Its second compiler and its parallel garbage collector cost
more than they save."""


@contextmanager
def open_session(
    master: str | None, *, progress: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The active session, which is left unchanged; else a new one, which is stopped at the end.

    ``master`` is Spark's URL. ``None`` means that of ``spark-submit``, else ``local[*]``. Raises
    :class:`~spark.errors.JavaError` if Spark would find no Java, and
    :class:`~spark.errors.JobError` if Spark fails while the session is open.
    """
    try:
        running = SparkSession.getActiveSession()
        if running is not None:
            yield running
            return
        session = start_session(master, progress=progress, more=settings or {})
        try:
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as error:
        raise JobError(f"Spark failed: {last_line(error)}") from error


def start_session(
    master: str | None, *, progress: bool = False, more: Mapping[str, str]
) -> SparkSession:
    """Starts a session whose workers use the Python of this process."""
    builder = SparkSession.builder.appName("dledger audit")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Within spark-submit, Java runs already, with the settings of the user.
        return (builder if master is None else builder.master(master)).getOrCreate()
    if master is not None and master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    use_java()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.log.level": "ERROR",
        **more,
    }
    if master is None or master.startswith("local"):
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            **settings,
        }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.master(master or "local[*]").getOrCreate()
