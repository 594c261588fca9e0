"""Replicas as Spark tables, and the audit of replicas.

:func:`register` adds ``spark.read.format("dledger")`` to a session. :func:`use_java` finds a Java
for a new session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "use_java"]


def register(session: SparkSession) -> None:
    """Registers the data source ``dledger`` with a session, classic or Connect."""
    from spark.datasource.data_source import DledgerDataSource  # noqa: PLC0415 - Spark is an extra

    session.dataSource.register(DledgerDataSource)
