"""Bytes on disk: the commit log, its indexes, and their recovery. It knows no network."""
