"""Helpers for tests of several packages.

- ``virtual_network``: ``NetworkedLoop``, the simulator's event loop with a network in memory. A
  test that takes the fixture ``loop`` runs in it, and one that takes ``each_loop`` in asyncio's
  loop and in uvloop's.
- ``fake_executor``: disk work without a thread.
- ``certificates``: keys and certificates of a cluster.
- ``odd_files``: other things in the place of a small file.
- ``frames``: decodes a whole frame of the remoting protocol.
- ``imports``: which file imports which, for tests of layers.
- ``command_reference``: makes the page of the commands.
- ``work_shares``: which worker of ``make test`` takes which file, and in which order.
- ``search_effort``: how long random tests search, and which of many cases ``make quick`` tries.

The fixtures of a folder are in its ``conftest.py``: ``tests/broker`` has ``broker``, ``site`` (its
HTTP port) and ``service`` (its gRPC service), ``tests/dledger/node`` has ``member``.
"""
