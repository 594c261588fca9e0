"""Measuring a cluster: what `dledger bench` does.

The load comes from a process of its own (``worker.py``), so its CPU time is apart from the
servers'. The code reads a real clock on purpose: ``time.perf_counter`` is the same in all processes
of a machine, and an event loop's own time may be a millisecond old.
"""
