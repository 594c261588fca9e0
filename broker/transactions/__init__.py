"""Transactions: messages that are delivered once their producer commits them, or never."""
