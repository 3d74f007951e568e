"""Training round after round: memory that is given back, leaks that are named, trials in processes of their own."""
