"""Everything known of a Keras model: layers, losses, optimizers, precision, freezing, building, loading."""
