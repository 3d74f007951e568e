"""Models of the allocators that frameworks put between a program and the card."""
