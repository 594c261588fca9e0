"""Fuzzing: ``python -m tests.fuzz --minutes 10 [--seed S]``.

Half of the time goes to decoders (``guided.py``), half to the ports of running servers
(``ports.py``), where a steady producer tells how long each attack kept it waiting
(``witness.py``). ``test_fuzz.py`` is a short run without chance.
"""
