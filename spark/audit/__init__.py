"""The audit of snapshots, as Spark jobs."""
