"""Messages between peers: codec, frames, connections."""
