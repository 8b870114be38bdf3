"""The long-running process: drop directories, liveness, server, lifecycle."""
