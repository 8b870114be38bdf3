"""discoveryctl: its commands, what they share, and the words in which answers are told."""
