"""Why the daemon does not start, by whose fault it is. Messages are whole sentences for people.

Faults of cards are values (core), faults of peers and callers are varlink's.
"""


class ConfigError(Exception):
    """The configuration, a flag or a variable says what cannot be meant: exit status 2."""


class StartError(Exception):
    """The configuration is sound but the host does not let the daemon start: exit status 1."""
