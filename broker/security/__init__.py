"""Who may do what: accounts, permissions, signatures, and the certificates of a cluster."""
