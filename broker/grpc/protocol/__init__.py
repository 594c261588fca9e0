"""RocketMQ 5's messages.

The ``_pb2`` modules are generated from the ``.proto`` files by ``make proto``, and must not be
edited (``tests/broker/grpc/test_protocol.py`` compares them).
"""
