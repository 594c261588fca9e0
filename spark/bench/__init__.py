"""The benchmark of the audit."""
