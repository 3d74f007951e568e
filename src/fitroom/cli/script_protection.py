"""What `fitroom run` does for a script: protects it when Keras is imported, and says in the end where it could not."""

import atexit
import os
from types import ModuleType

import click

from fitroom.backends.choose import choose_backend, keras_backend_choice
from fitroom.cli.backend_line import backend_words
from fitroom.errors import FitroomError
from fitroom.recipe import Recipe
from fitroom.train.keras_import import when_imported
from fitroom.train.protect import OLD_KERAS, PlainTraining, serve

_KERAS = "keras"


class ScriptProtection:
    """Has `model.fit` of a script served by `fitroom.fit`, however Keras comes into it.

    Args:
        script: what the user calls it.
        recipe: what `fit` begins with.
        run_dir: where it keeps checkpoints.
        backend: the one that `--backend` names; the script itself cannot choose another then.
    """

    def __init__(self, script: str, *, recipe: Recipe | None, run_dir: str | None, backend: str | None) -> None:
        self._script, self._recipe, self._run_dir = script, recipe, run_dir
        self._overridden = os.environ.get("KERAS_BACKEND")
        self._backend = choose_backend(backend) if backend else None
        self._plain = PlainTraining()
        self._seen: list[str] = []
        self._why_not: str | None = None

    def start(self) -> None:
        """Wait for Keras. At the end of the process training that was not served is told of."""
        when_imported((_KERAS, *OLD_KERAS), self._imported, before=self._importing)
        atexit.register(self._tell_of_plain_training)  # runs after the script's threads are done

    def end(self) -> None:
        """After the last line of a script."""
        if not self._seen:
            click.echo(f"fitroom: nothing was protected: {self._script} did not import Keras", err=True)

    def _importing(self, name: str) -> None:
        if name != _KERAS or _KERAS in self._seen or not self._backend:
            return
        if (now := os.environ.get("KERAS_BACKEND")) != self._backend:
            self._overridden = now
            os.environ["KERAS_BACKEND"] = self._backend

    def _imported(self, module: ModuleType) -> None:
        if "Model" not in vars(module):  # a file or folder of that name beside the script
            return
        is_first = _KERAS not in self._seen
        self._seen.append(module.__name__)
        if module.__name__ == _KERAS and is_first:
            self._protect()
        elif module.__name__ == _KERAS:
            # What fitroom holds of the first Keras does not fit the second.
            self._why_not = "Keras was imported a second time, as `keras.config.set_backend` does"
        self._plain.watch(module)

    def _protect(self) -> None:
        try:
            serve(recipe=self._recipe, run_dir=self._run_dir)
        except FitroomError as error:  # such as a backend that cannot train: the script may do other things with it
            self._why_not = error.message
            click.echo(f"fitroom: model.fit is NOT protected: {error.message}", err=True)
            return
        choice = keras_backend_choice(self._backend, overridden=self._overridden)
        click.echo(
            f"fitroom: running {self._script} with model.fit protected against out-of-memory, "
            f"on {backend_words(choice)}",
            err=True,
        )

    def _tell_of_plain_training(self) -> None:
        calls = self._plain.calls
        if not calls:
            return
        listed = ", ".join(f"{name} ({count} x)" if count > 1 else name for name, count in calls.items())
        click.echo(f"fitroom: warning: training ran that was NOT protected against out-of-memory: {listed}", err=True)
        for name in OLD_KERAS.values():
            if any(called.startswith(f"{name}'s ") for called in calls):
                click.echo(f"hint: {name} is Keras 2, which fitroom does not serve: `import keras`", err=True)
        if any(called.startswith(f"{_KERAS}'s ") for called in calls):
            click.echo(
                f"hint: {self._why_not or 'what is called on a model is served, as in model.fit(...)'}", err=True
            )
