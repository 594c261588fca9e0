"""OpenTelemetry traces of messages: an extra, of which nothing is loaded unless it is set up."""
