"""The gRPC port: RocketMQ 5's protocol over the broker's doors."""
