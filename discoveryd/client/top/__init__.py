"""The live view on a terminal: a picture's rows, how it is drawn, and what keeps it current."""
