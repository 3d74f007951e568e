"""What is going on in this machine: the cards in it and their memory. It reads, and never steers."""
