"""The step run on the card in this machine."""
