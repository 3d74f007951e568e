"""The cards people have: a catalogue, what each spends before the first tensor, and the ones in this machine."""
