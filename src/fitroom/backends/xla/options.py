"""What the compiler is told when there is no card."""

from pathlib import Path


def compiler_options(dump_folder: Path) -> dict[str, int | bool | str]:
    """The flags for a compile whose buffer assignment goes to a folder."""
    return {
        "xla_gpu_autotune_level": 0,  # there is no GPU to time kernels on
        "xla_backend_optimization_level": 0,
        "xla_dump_hlo_as_text": True,
        "xla_dump_to": str(dump_folder),
    }
