"""RocketMQ 5's messages.

The ``_pb2`` modules are generated from the ``.proto`` files beside them by ``make proto``, and are
not edited (``tests/broker/grpc/test_protocol.py`` compares them).
"""
