"""Who may do what: accounts, permissions and signatures; and the certificates of a cluster."""
