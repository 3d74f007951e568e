"""fitroom: train any Keras model in the GPU memory you have."""

__version__ = "0.1.0"
