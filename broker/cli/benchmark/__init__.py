"""What `dledger bench` measures: its workloads, the clusters that it makes for them, and the
tables. The load itself comes from a process of its own (``broker/bench/``)."""
