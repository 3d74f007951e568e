"""Operations as PyTorch carries them out on CUDA, where fake tensors on the CPU would show something else."""
