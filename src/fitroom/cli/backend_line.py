"""Which backend a command works on, and why: its first line on stderr."""

import click

from fitroom.backends.choose import BackendChoice, settle_backend
from fitroom.report.shared.words import format_backend


def choose_and_say(flag: str | None, *, why: str = "--backend", also: tuple[str, ...] = ()) -> str:
    """Settle the backend before Keras is imported and say which it is. Returns its name.

    Args:
        flag: what is asked for, or None.
        why: who asks for it.
        also: further words that the flag may be.
    """
    choice = settle_backend(flag, why=why, also=also)
    say_backend(choice)
    return choice.name


def say_backend(choice: BackendChoice) -> None:
    """Print the line."""
    click.echo(f"backend: {backend_words(choice)}", err=True)


def backend_words(choice: BackendChoice) -> str:
    """A backend and why it was taken, and what was not followed.

    >>> backend_words(BackendChoice(name="jax", why="--backend", overridden="KERAS_BACKEND=torch"))
    'JAX (--backend, which overrides KERAS_BACKEND=torch)'
    """
    overrides = f", which overrides {choice.overridden}" if choice.overridden else ""
    return f"{format_backend(choice.name)} ({choice.why}{overrides})"
