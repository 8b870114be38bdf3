"""Servers that run already and know nothing of discoveryd, registered from their own listings."""
