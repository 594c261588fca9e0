"""What ``GET /metrics`` tells: the catalog of metrics, and the figures that are read for it."""
