"""Predicts how long a step takes on a card, from the work of each layer and the card's datasheet."""
