"""Fuzzing: ``python -m tests.fuzz --minutes 10 [--seed S]``.

Half of the time goes to decoders (``decoder_process.py``), half to the ports of running servers
(``ports.py``). There a steady producer (``witness.py``) measures how long each attack makes it
wait. ``test_fuzz.py`` is a short run with a fixed seed.
"""
