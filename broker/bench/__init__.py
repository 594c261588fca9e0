"""The measurements of `dledger bench`.

The load comes from a separate process (``worker.py``), so that its CPU time is separate from the
servers'. The code reads a real clock on purpose: ``time.perf_counter`` is the same in all processes
of a machine, and an event loop's own time may be a millisecond old.
"""
