"""The commands of ``dledger``, one file each, and their output."""
