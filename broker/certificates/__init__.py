"""Making the certificates and secrets of a cluster, and telling how they are."""
