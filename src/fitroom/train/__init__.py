"""Training as a series of transactions, which neither out-of-memory nor a kill sets back."""
