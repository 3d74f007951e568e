"""What fused kernels do for a model, made readable."""
