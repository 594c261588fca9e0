"""Replicas as Spark tables, and the audit of replicas.

:func:`register` makes ``spark.read.format("dledger")`` known to a session, and
:func:`use_java` finds a Java for a session that is to be started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "use_java"]


def register(session: SparkSession) -> None:
    """Makes the data source ``dledger`` known to a session, classic or Connect."""
    from spark.datasource.data_source import DledgerDataSource  # noqa: PLC0415 - Spark is an extra

    session.dataSource.register(DledgerDataSource)
