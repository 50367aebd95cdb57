"""Lexical search in OpenSearch: the server, the index that follows PostgreSQL, questions to it."""
