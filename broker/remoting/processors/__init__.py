"""The requests that a broker answers: one module for each family of request codes."""
