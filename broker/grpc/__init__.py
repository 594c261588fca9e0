"""The gRPC port: RocketMQ 5's protocol for the broker's flows."""
