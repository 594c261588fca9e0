"""Small durable files: vote, durable mark, checkpoint, format, manifest."""
