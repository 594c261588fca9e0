"""Who may do what: accounts, permissions, signatures, and TLS on the ports of clients."""
