"""An estimate made readable."""
