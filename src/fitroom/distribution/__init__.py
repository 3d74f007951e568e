"""Several devices in one machine: which of them train, and which share of a batch each gets."""
