"""The assembly of a broker, its process, and its registration at the NameServers."""
