"""Transactions: messages that are delivered once their producer says so, or never."""
