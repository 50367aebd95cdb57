"""The embedded stack: PostgreSQL, Valkey, workers and web server as children of one command."""
