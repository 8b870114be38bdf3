"""How a call gets to the daemon and its answer back: where it is, and the two kinds of wires."""
