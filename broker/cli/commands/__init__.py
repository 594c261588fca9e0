"""The commands of ``dledger``, one file each, and what each of them prints."""
