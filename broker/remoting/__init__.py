"""RocketMQ's remoting protocol: frames, connections, the server and the client."""
