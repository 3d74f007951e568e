"""Pictures in, trained classifier out."""
