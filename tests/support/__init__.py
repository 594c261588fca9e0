"""What tests of several packages share.

- ``virtual_network``: ``NetworkedLoop``, the simulator's event loop with a network in memory. A
  test that takes the fixture ``loop`` runs in it.
- ``fake_executor``: disk work without a thread.
- ``certificates``: keys and certificates of a cluster.
- ``odd_files``: files as their owners did not write them.
- ``frames``: a whole frame of the remoting protocol, decoded.
- ``imports``: who imports whom, for tests of layers.
- ``command_reference``: the command line's own help, as its page has it.
- ``search_effort``: how long properties are searched.

The fixtures of a room stand in its ``conftest.py``: ``tests/broker`` has ``broker``, ``site`` (its
HTTP port) and ``service`` (its gRPC service), ``tests/dledger/node`` has ``member``.
"""
