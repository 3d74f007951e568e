"""What the shell offers after Tab; found without importing a framework, so that Tab stays quick."""

import re
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

MODELS = (
    *("convnextbase", "convnextlarge", "convnextsmall", "convnexttiny", "convnextxlarge"),
    *("densenet121", "densenet169", "densenet201"),
    *(f"efficientnetb{number}" for number in range(8)),
    *(f"efficientnetv2{size}" for size in ("b0", "b1", "b2", "b3", "s", "m", "l")),
    *("inceptionresnetv2", "inceptionv3", "mobilenet", "mobilenetv2", "mobilenetv3large", "mobilenetv3small"),
    *("nasnetlarge", "nasnetmobile", "resnet50", "resnet101", "resnet152", "resnet50v2", "resnet101v2", "resnet152v2"),
    *("vgg16", "vgg19", "xception"),
)
"""The names of keras.applications, without asking Keras."""


def complete_models(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of ready-made models; or files, where none begins so."""
    return _beginning(typed, MODELS) or [CompletionItem(typed, type="file")]


def complete_gpus(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of cards, in lower case and without blanks: shells cut words at blanks."""
    from fitroom.cards.catalogue import all_cards

    return _beginning(typed, (re.sub(r"[^a-z0-9]+", "-", card.name.lower()) for card in all_cards()))


def complete_runs(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Folders."""
    return [CompletionItem(typed, type="dir")]


def _beginning(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed.lower())]
