"""Graphics cards: a catalogue, the memory each spends before the first tensor, and the cards in this machine."""
