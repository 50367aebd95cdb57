"""Embedders and rerankers: adapters behind `workers.ports`."""
