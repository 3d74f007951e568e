"""Finding the fastest recipe that fits a budget."""
