"""Measuring a cluster: what `dledger bench` does.

The load comes from a process of its own (``worker.py``), so that its CPU time can be told from the
servers'. Here a real clock is read on purpose: ``time.perf_counter`` is the same in all processes
of a machine, and an event loop's own time may be a millisecond old.
"""
