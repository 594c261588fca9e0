"""SQL92 filters: what a consumer's expression says of a message's properties."""
