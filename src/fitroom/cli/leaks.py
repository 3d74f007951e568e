"""`fitroom leaks`: whether memory grows from round to round of a loop, and what holds it."""

import click

from fitroom.cli import shared_options as shared
from fitroom.cli.option_types import WholeNumber
from fitroom.cli.output import choose_backend_and_say, json_text, progress, stdout_for_results
from fitroom.errors import FitroomError, InputError

_EPILOG = (
    "Results go to stdout, everything else to stderr. Exit codes: 0 steady; 1 it leaks, or the input cannot work; "
    "2 wrong usage; 3 not enough rounds for a verdict."
)
_NOT_ENOUGH = 3


@click.command(name="leaks", epilog=_EPILOG)
@click.argument("function", metavar="FILE.py:FUNCTION")
@click.option(
    "--rounds", type=WholeNumber(min=1), default=10, show_default=True, metavar="N", help="Rounds, warm-up included."
)
@click.option(
    "--warm-up", type=WholeNumber(min=0), default=3, show_default=True, metavar="N", help="Rounds not judged."
)
@click.option("--fresh", is_flag=True, help="Run each round in a block of fitroom.fresh().")
@shared.backend("jax, tensorflow or torch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(function: str, rounds: int, warm_up: int, fresh: bool, backend: str | None, as_json: bool) -> None:
    """Call FUNCTION again and again: does memory grow from call to call, by how much, and what holds it?

    The function is one round of a loop, such as one fold. It is called with nothing, or with the round's number. Where
    memory grows, three more rounds are run to find out what does.

    \b
    fitroom leaks folds.py:train_fold
    fitroom leaks folds.py:train_fold --rounds 30 --fresh
    fitroom leaks package.module:train_fold --json
    """
    from fitroom.backends.choose import current_backend
    from fitroom.backends.quiet import hold_stderr, quieten
    from fitroom.keras_model.loading.function import error_of, find_function, is_function

    if not is_function(function):
        raise InputError(
            f"The function is given as FILE.py:FUNCTION. Received: {function!r}.", hint="fitroom leaks folds.py:train"
        )
    from fitroom.loops.leaks import check_rounds, leaks

    check_rounds(rounds, warm_up)
    quieten(choose_backend_and_say(backend))
    with stdout_for_results(), progress() as say:
        say(f"importing {function.rpartition(':')[0] or function}")
        one_round = find_function(function.strip(), purpose="carries out one round", example="one_round")
        with hold_stderr():  # JAX with a plugin for CUDA and no card says so in a traceback
            current_backend().devices()
        try:
            found = leaks(
                one_round,
                rounds,
                warm_up=warm_up,
                fresh=fresh,
                on_round=lambda number, of: say(f"round {number + 1} of {of}"),
            )
        except FitroomError:
            raise
        except Exception as error:  # whatever the user's function raises
            raise error_of(function.strip(), error) from error
    if as_json:
        click.echo(json_text(found.to_dict()))
    else:
        from rich.console import Console

        Console().print(found)
    click.get_current_context().exit({"steady": 0, "leaks": 1, "not enough rounds": _NOT_ENOUGH}[found.verdict])
