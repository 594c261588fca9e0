"""``GET /metrics``: the catalog of metrics, and the readings for it."""
