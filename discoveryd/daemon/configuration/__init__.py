"""What the daemon is told, by whom, and what another word changes."""
