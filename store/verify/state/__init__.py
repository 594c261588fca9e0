"""The small files of a replica, and the state that a checkpoint must have."""
