"""Protection of a script by `fitroom run`: it starts when Keras is imported, and reports what was not protected."""

import atexit
import os
from contextlib import ExitStack
from types import ModuleType

import click

from fitroom.backends.choose import choose_backend, keras_backend_choice
from fitroom.cli import processes
from fitroom.cli.output import backend_words
from fitroom.distribution.selection import DeviceSelection
from fitroom.errors import FitroomError, NeedsProcesses
from fitroom.recipe import Recipe
from fitroom.train.keras_import import when_imported
from fitroom.train.protect import OLD_KERAS, PlainTraining, serve

_KERAS = "keras"


class ScriptProtection:
    """Has `model.fit` of a script served by `fitroom.fit`, however the script imports Keras.

    `script` is its name for messages, `recipe` the one `fit` starts with, `run_dir` the folder of checkpoints. With
    `backend` the script cannot choose another one.
    """

    def __init__(
        self,
        script: str,
        *,
        recipe: Recipe | None,
        run_dir: str | None,
        backend: str | None,
        devices: DeviceSelection | None = None,
    ) -> None:
        self._devices = devices
        self._in_force = ExitStack()
        self._script, self._recipe, self._run_dir = script, recipe, run_dir
        self._overridden = os.environ.get("KERAS_BACKEND")
        self._backend = choose_backend(backend) if backend else None
        self._plain = PlainTraining()
        self._seen: list[str] = []
        self._why_not: str | None = None

    def start(self) -> None:
        """Wait for the import of Keras. At the end of the process, training that was not protected is reported."""
        when_imported((_KERAS, *OLD_KERAS), self._imported, before=self._importing)
        atexit.register(self._report_plain_training)  # runs after the script's threads are done

    def end(self) -> None:
        """Report, after the last line of the script, if Keras was never imported."""
        if not self._seen:
            click.echo(f"fitroom: nothing was protected: {self._script} did not import Keras", err=True)

    def _importing(self, name: str) -> None:
        if name != _KERAS or _KERAS in self._seen or not self._backend:
            return
        if (now := os.environ.get("KERAS_BACKEND")) != self._backend:
            self._overridden = now
            os.environ["KERAS_BACKEND"] = self._backend

    def _imported(self, module: ModuleType) -> None:
        if "Model" not in vars(module):  # a file or folder named keras beside the script
            return
        is_first = _KERAS not in self._seen
        self._seen.append(module.__name__)
        if module.__name__ == _KERAS and is_first:
            self._protect()
        elif module.__name__ == _KERAS:
            # fitroom is bound to the first import of Keras.
            self._why_not = "Keras was imported a second time, as `keras.config.set_backend` does"
        self._plain.watch(module)

    def _protect(self) -> None:
        try:
            serve(recipe=self._recipe, run_dir=self._run_dir)
        except FitroomError as error:  # e.g. a backend that cannot train: the script may use it otherwise
            self._why_not = error.message
            click.echo(f"fitroom: model.fit is NOT protected: {error.message}", err=True)
            return
        if self._devices is not None:
            self._begin_devices(self._devices)
        choice = keras_backend_choice(self._backend, overridden=self._overridden)
        click.echo(
            f"fitroom: running {self._script} with model.fit protected against out-of-memory, "
            f"on {backend_words(choice)}",
            err=True,
        )

    def _begin_devices(self, devices: DeviceSelection) -> None:
        """Have all that follows run on several devices, until the process ends."""
        import keras

        from fitroom.train.devices import devices as use_devices

        if keras.backend.backend() == "torch":
            if not processes.is_launched():
                raise NeedsProcesses
            processes.seed_alike()
            devices = DeviceSelection()  # as many as there are processes
        atexit.register(self._in_force.close)
        self._in_force.enter_context(use_devices(devices))

    def _report_plain_training(self) -> None:
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
                f"hint: {self._why_not or 'only calls on a model object are protected, as in model.fit(...)'}", err=True
            )
