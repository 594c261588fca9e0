"""Plants damage in replicas of a group. The checkers must find that damage and nothing else."""
