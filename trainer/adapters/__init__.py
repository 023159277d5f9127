"""Adapters: small trainable weights on a frozen transformer, and their files."""
