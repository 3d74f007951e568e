"""`fitroom gpus`: the cards that fitroom knows, and those in this machine."""

import json
from itertools import groupby
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card, all_cards, find_card
from fitroom.cards.nvml import LiveGpu, live_gpus
from fitroom.errors import UnknownNameError
from fitroom.report.facts import (
    BACKENDS,
    format_capability,
    format_facts,
    format_tflops,
    list_card_facts,
)
from fitroom.units import format_bytes

WIDTH = 80
_CARDS = "Cards, with TFLOPS in float32 and bfloat16"


@click.command("gpus", epilog="Exit codes: 0 done; 1 unknown card; 2 wrong usage.")
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
def command(name: tuple[str, ...], as_json: bool) -> None:
    """List the cards that fitroom knows, and those in this machine.

    With NAME, show all data of one card: fitroom gpus RTX 3060
    """
    if name:
        card = find_card(" ".join(name))
        if as_json:
            _show_json(_facts(card))
        else:
            _show_card(card)
        return
    live = live_gpus()
    if not live:
        click.echo("No NVIDIA GPU was found in this machine.", err=True)
    if as_json:
        _show_json([*(_live_facts(gpu) for gpu in live), *(_facts(card) for card in all_cards())])
        return
    if live:
        _show_live(live)
    _show_catalogue(all_cards())


def _show_live(live: tuple[LiveGpu, ...]) -> None:
    table = _table("In this machine", "Index", "Name", "Memory", "Free")
    for gpu in live:
        table.add_row(str(gpu.index), gpu.name, format_bytes(gpu.memory_bytes), format_bytes(gpu.free_bytes))
    _print(table)


def _show_catalogue(cards: tuple[Card, ...]) -> None:
    table = _table(_CARDS, "Name", "Memory", "Capability", "GB/s", "float32", "bfloat16")
    for (vendor, architecture), group in groupby(cards, key=lambda card: (card.vendor, card.architecture)):
        table.add_row()
        table.add_row(f"{vendor} {architecture}")
        for card in group:
            table.add_row(
                f"  {card.name}",
                format_bytes(card.memory_bytes),
                format_capability(card),
                f"{card.bandwidth_bytes_per_second / 1e9:,.0f}",
                format_tflops(card.fp32_flops),
                format_tflops(card.bf16_flops),
            )
    _print(table)
    click.echo("\n`fitroom gpus NAME` shows one card. AMD and Apple are listed for memory only.")


def _show_card(card: Card) -> None:
    click.echo(format_facts(list_card_facts(card)))


def _facts(card: Card) -> dict[str, Any]:
    return {
        "live": False,
        "name": card.name,
        "aliases": list(card.aliases),
        "vendor": card.vendor,
        "architecture": card.architecture,
        "compute_capability": format_capability(card) or None,
        "memory_bytes": card.memory_bytes,
        "budget_bytes": {backend: _budget(card, backend) for backend in BACKENDS},
        "bandwidth_bytes_per_second": card.bandwidth_bytes_per_second,
        "sm_count": card.sm_count,
        "clock_ghz": card.clock_ghz,
        "l2_bytes": card.l2_bytes,
        "fp32_flops": card.fp32_flops,
        "tf32_flops": card.tf32_flops,
        "fp16_flops": card.fp16_flops,
        "bf16_flops": card.bf16_flops,
        "source": card.source,
    }


def _live_facts(gpu: LiveGpu) -> dict[str, Any]:
    try:
        card = find_card(gpu.name).name
    except UnknownNameError:
        card = None
    return {
        "live": True,
        "name": gpu.name,
        "card": card,
        "index": gpu.index,
        "memory_bytes": gpu.memory_bytes,
        "used_bytes": gpu.used_bytes,
    }


def _budget(card: Card, backend: str) -> int:
    return Budget.of(card.name, backend=backend).bytes


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="", header_style="", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "Name" else "right", no_wrap=True)
    return table


def _print(table: Table) -> None:
    # A fixed width, so that piped output is the same as in a terminal.
    Console(width=WIDTH, highlight=False, color_system=None).print(table)


def _show_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
