"""The Raft protocol alone: events go in, a :class:`~dledger.raft.ready.Ready` comes out."""
