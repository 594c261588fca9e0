"""Makes and checks the certificates and secrets of a cluster."""
