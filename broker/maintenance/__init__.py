"""Background work: retention, the check of derived files, state proofs."""
