"""Which XLA compiler lays out TensorFlow's steps: one near the XLA that TensorFlow itself carries, where there is one.

TensorFlow brings XLA along but no way to compile for a card that is not there. JAX's compiler package has one, in
one shared library; of its versions one is near. In a folder of its own it leaves whatever JAX is installed alone.
"""

from dataclasses import dataclass

from fitroom.backends.xla.library import CompilerLibrary, compiler_in, installed_compiler
from fitroom.environment import tensorflow_compiler_folder
from fitroom.errors import BackendError, InputError

NEAR_VERSIONS = {"2.21": "0.9.0"}
"""By version of TensorFlow, the compiler package nearest to its XLA: of all releases it shares the most compiler flags.
The next one, 0.9.1, laid out every step that was tried to the same byte; 0.10.2 some of them 9 % larger."""

LATEST_NEAR = NEAR_VERSIONS["2.21"]
PACKAGE = "jax-cuda12-pjrt"
DOWNLOAD_MB, DISK_MB = 155, 430
"""Of the package on Linux for x86-64."""


@dataclass(frozen=True, kw_only=True)
class ChosenCompiler:
    """A compiler, and whether its layout can be taken for TensorFlow's own."""

    library: CompilerLibrary
    near: bool
    notes: tuple[str, ...]


def choose_compiler() -> ChosenCompiler:
    """The compiler in the folder made for TensorFlow, or else the one that is installed. Raises where there is none."""
    tensorflow = tensorflow_version()
    wanted = near_version(tensorflow)
    library = _in_its_folder(wanted) or installed_compiler()
    if library is None:
        raise BackendError(
            "Estimating TensorFlow's jitted step needs XLA's GPU compiler, which is not installed.",
            hint=f"{install_command(wanted or LATEST_NEAR)} (on Linux), or --no-jit for the step without XLA",
        )
    near = wanted is not None and library.version.split(".")[:3] == wanted.split(".")
    return ChosenCompiler(library=library, near=near, notes=() if near else (_note(library, tensorflow, wanted),))


def tensorflow_version() -> str:
    """The version of TensorFlow that is installed, whichever of its packages brought it."""
    import tensorflow as tf

    return str(tf.__version__)


def install_command(wanted: str) -> str:
    """How to get the compiler of a version into its folder."""
    return f"pip install --no-deps --target {tensorflow_compiler_folder()} {PACKAGE}=={wanted}"


def _in_its_folder(wanted: str | None) -> CompilerLibrary | None:
    folder = tensorflow_compiler_folder()
    if not folder.exists():
        return None
    found = compiler_in(folder)
    if found is None:
        raise InputError(
            f"There is no XLA compiler in the folder for TensorFlow's. Received: {folder}.",
            hint=install_command(wanted or LATEST_NEAR),
        )
    return found


def near_version(tensorflow: str) -> str | None:
    """The version of the compiler package that is near to the XLA of a version of TensorFlow; None: not known."""
    return NEAR_VERSIONS.get(".".join(tensorflow.split(".")[:2]))


def _note(library: CompilerLibrary, tensorflow: str, wanted: str | None) -> str:
    if wanted is None:
        return f"Laid out by {library}; which version is nearest to the XLA in TensorFlow {tensorflow} is not known."
    return (
        f"Laid out by {library}, by which a step may take up to 9 % more than on TensorFlow {tensorflow}; {PACKAGE} "
        f"{wanted} is near to it. `fitroom estimate --fetch-compiler` downloads that once ({DOWNLOAD_MB} MB), as does: "
        f"{install_command(wanted)}"
    )
