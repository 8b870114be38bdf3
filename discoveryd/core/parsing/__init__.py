"""From a card file's bytes to a card, or to all that is wrong with it."""
