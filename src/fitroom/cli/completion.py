"""`fitroom completion`: what a shell needs to complete commands, flags, models and cards."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that has SHELL complete fitroom's commands, flags, models and cards after Tab.

    \b
    echo 'eval "$(fitroom completion bash)"' >> ~/.bashrc
    echo 'eval "$(fitroom completion zsh)"' >> ~/.zshrc
    fitroom completion fish > ~/.config/fish/completions/fitroom.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "fitroom", "_FITROOM_COMPLETE").source())
