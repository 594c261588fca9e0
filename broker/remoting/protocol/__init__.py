"""Frames, codes, header fields and errors of RocketMQ's remoting protocol."""
