"""`fitroom explain`: what a crash log says, why, and what to try next."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.completion import complete_models
from fitroom.cli.option_types import WholeNumber
from fitroom.cli.output import choose_backend_and_say, json_text, progress, stdout_for_results
from fitroom.errors import InputError
from fitroom.explaining.cause import Cause
from fitroom.explaining.explanation import Explanation

_CHUNK_BYTES = 2**16
_LONGEST_LINE = 2**20
_EPILOG = (
    "The explanation goes to stdout; a log that is piped in is passed on to stderr. Exit codes: 0 explained; 1 not "
    "recognised, or the input cannot be read; 2 wrong usage."
)


@click.command(name="explain", epilog=_EPILOG)
@click.argument("log", required=False, type=click.Path(path_type=Path))
@click.option(
    "--model",
    metavar="MODEL",
    help="The model that was being trained: each setting then says how many bytes it saves.",
    shell_complete=complete_models,
)
@click.option(
    "--batch-size", type=WholeNumber(min=1), metavar="N", help="Samples of the step that failed; with --model."
)
@shared.image_size
@shared.classes
@shared.backend("With --model: jax, tensorflow or torch.", default="the one that the log is of")
@shared.gpu("With --model: the card.  [default: the one the log names, else this machine's, else a T4]")
@shared.unsafe
@click.option("--quiet", is_flag=True, help="Do not pass a log that is piped in on to stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(
    log: Path | None,
    model: str | None,
    batch_size: int | None,
    backend: str | None,
    gpu: str | None,
    quiet: bool,
    as_json: bool,
    **of_model: Any,
) -> None:
    """Explain why a program ran out of memory, from its log: device, phase, layer, cause, and what to try next.

    LOG is a file; without it the log is read from stdin. It may be of TensorFlow, JAX or PyTorch, of any version, or
    of the system; a log that is not recognised is reported as such (exit code 1).

    \b
    fitroom explain crash.log
    python train.py 2>&1 | fitroom explain
    fitroom explain crash.log --model xception --image-size 299 --batch-size 64
    """
    if (model is None) != (batch_size is None):
        raise click.UsageError("--model and --batch-size belong together: a saving depends on both")
    given = [
        f"--{name.replace('_', '-')}" for name, value in (of_model | {"gpu": gpu, "backend": backend}).items() if value
    ]
    if model is None and given:
        raise click.UsageError(f"{', '.join(given)} is about the model: give --model and --batch-size, too")
    if model is not None:
        from fitroom.keras_model.loading.source import check_model

        check_model(model)
    explanation = _explain(log, passes_on=not quiet)
    if model is not None and batch_size is not None and explanation.failure is not None:
        explanation = _with_savings(explanation, model, batch_size, backend, gpu, of_model)
    if as_json:
        click.echo(json_text(explanation.to_dict()))
    else:
        from rich.console import Console

        Console().print(explanation)
    if not explanation.recognised:
        click.get_current_context().exit(1)


def _explain(log: Path | None, *, passes_on: bool) -> Explanation:
    from fitroom.explaining.explain import explain_file, explain_lines

    if log is not None:
        return explain_file(log)
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "No log was given.", hint="fitroom explain crash.log, or python train.py 2>&1 | fitroom explain"
        )
    kills = _count_oom_kills()
    explanation = explain_lines(_read_stdin(sys.stdin.buffer, passes_on=passes_on))
    if not explanation.line_count:
        raise InputError("The log is empty.", hint="python train.py 2>&1 | fitroom explain: errors go through `2>&1`")
    if explanation.failure is None and None not in (kills, after := _count_oom_kills()) and (after or 0) > (kills or 0):
        return _oom_killed(explanation)
    return explanation


def _read_stdin(file: BinaryIO, *, passes_on: bool) -> Iterator[str]:
    """The lines of stdin. Each chunk is passed on to stderr when it is read, so that a training can be followed."""
    from fitroom.explaining.explain import check_text

    rest, is_first = b"", True
    while chunk := file.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
        if is_first:
            check_text(chunk if chunk.strip() else b"-", "stdin")
            is_first = False
        if passes_on:
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


def _count_oom_kills() -> int | None:
    """How many processes the kernel has killed for memory in this container or session; None where it does not tell."""
    try:
        own = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
        for folder in (Path("/sys/fs/cgroup") / own.lstrip("/"), Path("/sys/fs/cgroup")):
            events = folder / "memory.events"
            if events.is_file():
                counts = dict(line.split() for line in events.read_text().splitlines())
                return int(counts["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
    return None


def _oom_killed(explanation: Explanation) -> Explanation:
    """The log ends without an error, and meanwhile the kernel killed a process for memory."""
    from fitroom.explaining.advice import advise
    from fitroom.explaining.failure import Failure

    failure = Failure(kind="host_out_of_memory", framework="system", device="host", line_number=explanation.line_count)
    why = "While the program ran, the kernel killed a process of this container or session because main memory ran out."
    cause = Cause(name="host", sureness="shown", why=why)
    return replace(explanation, failure=failure, cause=cause, settings=advise(failure, cause), notes=())


def _with_savings(
    explanation: Explanation,
    model: str,
    batch_size: int,
    backend: str | None,
    gpu: str | None,
    of_model: dict[str, Any],
) -> Explanation:
    from fitroom.backends.choose import installed_backends
    from fitroom.backends.quiet import quieten_for_estimates
    from fitroom.explaining.savings import estimate_savings
    from fitroom.keras_model.loading.source import ModelSource, load_resizable

    framework = explanation.failure.framework if explanation.failure else None
    if backend is None and framework in installed_backends():
        chosen = choose_backend_and_say(framework, why="the log is of it")
    else:
        chosen = choose_backend_and_say(backend)
    quieten_for_estimates(chosen)
    with progress() as say, stdout_for_results():
        say(f"building {model}")
        loaded = load_resizable(ModelSource(text=model, **of_model)).model
        return estimate_savings(explanation, loaded, batch_size, gpu=gpu, say=say)
