"""Values made readable: in the terminal and as pictures."""
