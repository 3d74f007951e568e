"""The step in graph mode: Grappler for a card that is not there, the executor, the allocator."""
