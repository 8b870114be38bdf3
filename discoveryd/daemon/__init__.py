"""The long-running process: drop directories, server, lifecycle. The only room that does I/O on cards."""
