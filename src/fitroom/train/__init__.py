"""Training as a series of transactions: nothing lost to out-of-memory, nothing lost to a kill."""
