"""`fitroom completion`, and what the shell offers after Tab, found without importing a framework."""

import re
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes commands, flags, models and cards.

    \b
    echo 'eval "$(fitroom completion bash)"' >> ~/.bashrc
    echo 'eval "$(fitroom completion zsh)"' >> ~/.zshrc
    fitroom completion fish > ~/.config/fish/completions/fitroom.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "fitroom", "_FITROOM_COMPLETE").source())


MODELS = (
    *("convnextbase", "convnextlarge", "convnextsmall", "convnexttiny", "convnextxlarge"),
    *("densenet121", "densenet169", "densenet201"),
    *(f"efficientnetb{number}" for number in range(8)),
    *(f"efficientnetv2{size}" for size in ("b0", "b1", "b2", "b3", "s", "m", "l")),
    *("inceptionresnetv2", "inceptionv3", "mobilenet", "mobilenetv2", "mobilenetv3large", "mobilenetv3small"),
    *("nasnetlarge", "nasnetmobile", "resnet50", "resnet101", "resnet152", "resnet50v2", "resnet101v2", "resnet152v2"),
    *("vgg16", "vgg19", "xception"),
)
"""The names of keras.applications, without importing Keras."""


def complete_models(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of keras.applications models; or files, where no name matches."""
    return _match(typed, MODELS) or [CompletionItem(typed, type="file")]


def complete_gpus(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of cards in lower case and without spaces, at which shells split words."""
    from fitroom.cards.catalogue import all_cards

    return _match(typed, (re.sub(r"[^a-z0-9]+", "-", card.name.lower()) for card in all_cards()))


def complete_runs(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Run folders."""
    return [CompletionItem(typed, type="dir")]


def _match(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed.lower())]
