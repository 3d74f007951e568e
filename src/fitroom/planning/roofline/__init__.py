"""How long a step takes on a card: the work of each layer against what the card can do at best."""
