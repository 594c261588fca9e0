"""The report of an audit: HTML, charts, result files."""
