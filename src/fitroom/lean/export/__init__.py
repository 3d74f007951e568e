"""Export of a trained model to other formats, checked on real images."""
