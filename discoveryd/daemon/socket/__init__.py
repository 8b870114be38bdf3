"""The socket: its path, the connections on it, and the limits of both."""
