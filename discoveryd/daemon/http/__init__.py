"""The read-only HTTP side: off unless asked for. What is answered is read from the daemon."""
