"""Cards in, standings and changes out. Pure: knows no file, socket, clock, loop or logger."""
