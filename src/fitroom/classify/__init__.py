"""The image classifier: what `fitroom train` and `fitroom predict` do."""
