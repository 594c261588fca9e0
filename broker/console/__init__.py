"""The console: pages that show a cluster and change it, served by every broker."""
