"""The ledger: what must be remembered for a restart to change nothing, and how it is kept."""
