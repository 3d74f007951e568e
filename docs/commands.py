"""The reference of commands, from the commands themselves.

python docs/commands.py            # writes docs/reference/commands.md
python docs/commands.py --check    # exit code 1 if that would change it
"""

import inspect
import sys
from pathlib import Path

import click

from fitroom.cli.main import COMMANDS, fitroom

PAGE = Path(__file__).parent / "reference" / "commands.md"
INTRODUCTION = """# Commands

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the input cannot be used, 2 wrong usage of the
command line, 130 interrupted by Ctrl-C, 143 ended by SIGTERM. This page is what `fitroom COMMAND --help` says, written
by `docs/commands.py`.
"""


def page() -> str:
    """All commands in Markdown, in the order of `fitroom --help`."""
    everything = click.Context(fitroom, info_name="fitroom")
    summary = ["| command | for |", "|---|---|"]
    summary += [f"| [`fitroom {name}`](#fitroom-{name}) | {_cell(text)} |" for name, text in COMMANDS.items()]
    parts = [INTRODUCTION, "\n".join(summary) + "\n"]
    for name in COMMANDS:
        command = fitroom.get_command(everything, name)
        assert command is not None
        parts.append(_section(command, click.Context(command, info_name=name, parent=everything)))
    return "\n".join(parts)


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    rows = [_row(parameter, context) for parameter in command.get_params(context)]
    parts = [
        f"## {context.command_path}",
        f"```\n{context.command_path} {usage}\n```",
        *map(_paragraph, inspect.cleandoc(command.help or "").split("\n\n")),
        "\n".join(["| option | is |", "|---|---|", *filter(None, rows)]),
        *([command.epilog] if command.epilog else []),
    ]
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    """As it stands, and examples (click leaves what follows a backspace alone) as code."""
    if not text.startswith("\b"):
        return text
    return f"```\n{inspect.cleandoc(text.removeprefix(chr(8)).strip(chr(10)))}\n```"


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    names, meaning = parameter.get_help_record(context) or ("", "")
    return f"| `{names}` | {_cell(meaning)} |" if meaning else None


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the page, or say that it is not what the commands are."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE} is not what the commands say: python docs/commands.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
