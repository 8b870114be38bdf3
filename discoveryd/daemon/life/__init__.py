"""Liveness: leases, processes and holds, and what ends with them."""
