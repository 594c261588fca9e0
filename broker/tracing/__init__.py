"""OpenTelemetry traces of messages: an optional part, loaded only if it is configured."""
