"""The machines of a cluster, and what runs on them."""
