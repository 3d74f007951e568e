"""Facts about small values: a budget, a card, the largest batches. The same for `print` and for a notebook."""

from typing import TYPE_CHECKING

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import context_bytes
from fitroom.planning.max_batch import MaxBatch
from fitroom.report.shared.templates import render
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup

Facts = dict[str, str]
"""Names and values, in order."""

BACKENDS = ("jax", "tensorflow", "torch")


def format_budget(budget: Budget) -> str:
    """Say how large a budget is and where it is from.

    >>> format_budget(Budget.of("12GiB"))
    '12.00 GiB for training, as given'
    """
    source = "as given" if budget.source == "given" else budget.source
    return f"{format_bytes(budget.bytes)} for training{', ' if source == 'as given' else ': '}{source}"


def list_max_batch_facts(found: MaxBatch) -> Facts:
    """List both batch sizes and the budget."""
    return {
        "largest whole batch": f"{found.plain}" if found.plain else "none",
        "with the most recomputed": str(found.with_remat),
        "budget": format_budget(found.budget),
    }


def list_card_facts(card: Card) -> Facts:
    """List the datasheet, and the memory left for training on each backend; what is unknown is left out."""
    rates = {"tfloat32": card.tf32_flops, "float16": card.fp16_flops, "bfloat16": card.bf16_flops}
    lines = {
        "Name": card.name,
        "Also known as": ", ".join(card.aliases),
        "Made by": f"{card.vendor}, {card.architecture}",
        "Compute capability": format_capability(card),
        "Memory": f"{format_bytes(card.memory_bytes)} ({card.memory_bytes:,} bytes)",
        "Bandwidth": f"{card.bandwidth_bytes_per_second / 1e9:,.1f} GB/s",
        "Multiprocessors": f"{card.sm_count} at {card.clock_ghz} GHz",
        "L2 cache": format_bytes(card.l2_bytes),
        "float32": f"{format_tflops(card.fp32_flops)} TFLOPS",
        **{f"{kind} matrix units": f"{format_tflops(flops)} TFLOPS" for kind, flops in rates.items() if flops},
        **{
            f"Budget with {backend}": format_bytes(card.memory_bytes - context_bytes(card, backend))
            for backend in BACKENDS
        },
        "Source": card.source,
    }
    return {name: value for name, value in lines.items() if value}


def format_facts(facts: Facts) -> str:
    """Write a line for each fact, the values below each other."""
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items())


def render_facts(facts: Facts) -> "Markup":
    """Render facts for a notebook, names and values below each other."""
    return render("facts.html", facts=facts)


def format_capability(card: Card) -> str:
    """Write the compute capability, `8.6`; empty for cards that are not NVIDIA's."""
    return ".".join(map(str, card.compute_capability)) if card.compute_capability else ""


def format_tflops(flops: int | None) -> str:
    """Write operations a second in TFLOPS; empty where they are unknown."""
    return "" if flops is None else f"{flops / 1e12:,.1f}"
