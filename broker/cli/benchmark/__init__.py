"""The workloads of `dledger bench`, its clusters, and its tables. The load comes from a separate
process (``broker/bench/``)."""
