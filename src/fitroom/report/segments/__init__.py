"""A model's remat segments made readable."""
