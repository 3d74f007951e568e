"""Run as a process of its own: compile a program for a card that is not there.

    python -m fitroom.backends.xla.child LIBRARY hlo|mlir PROGRAM TARGET DUMP_FOLDER

The compiler may crash on an odd target or be killed for its memory; whoever started this process lives on.
"""

import sys
from functools import partial
from pathlib import Path

from fitroom.backends.xla.compile import compile_without_card, leave_when_dumped
from fitroom.backends.xla.pjrt import Format, Library, PjrtError


def _compile(library: Path, code_format: Format, program: Path, target: Path, dump_folder: Path) -> None:
    try:
        compiler = Library(library)
        compile_without_card(
            lambda options: compiler.compile(program.read_bytes(), code_format, target.read_text(), options),
            dump_folder,
        )
    except (OSError, PjrtError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)


if __name__ == "__main__":
    library, program, target, dump_folder = map(Path, (sys.argv[1], *sys.argv[3:]))
    leave_when_dumped(
        partial(_compile, library, "hlo" if sys.argv[2] == "hlo" else "mlir", program, target), dump_folder
    )
