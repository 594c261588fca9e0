"""Work beside the traffic: retention, the check of derived files, proofs of the state."""
