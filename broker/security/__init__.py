"""Access control: accounts, permissions, signatures, and the certificates of a cluster."""
