"""discoveryd: which workers on this host serve the model X, and if none, why not.

This file holds the version and nothing else, so that importing any room stays cheap.
"""

__version__ = "0.1.0"
