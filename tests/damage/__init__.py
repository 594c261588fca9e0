"""Damage planted in replicas of a group, to see that it is found where it is and nothing else."""
