"""The producer: queue selection, retries, transactions, request and reply."""
