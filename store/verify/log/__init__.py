"""The check of the log: entries, and batches column by column."""
