"""The sentences and figures about runs side by side."""

from collections.abc import Sequence

from fitroom.loops.trials.plain import format_value
from fitroom.report.compare.groups import Group, Spread, list_differences
from fitroom.report.progress.words import format_time as format_seconds
from fitroom.report.shared.words import format_count, format_figure, format_share
from fitroom.units import format_bytes, used_of


def format_accuracy(spread: Spread | None) -> str:
    """Write an accuracy, with its standard deviation where there are several runs.

    >>> format_accuracy(Spread.of([0.9, 0.92])), format_accuracy(Spread.of([0.5])), format_accuracy(None)
    ('91.0 ± 1.4 %', '50.0 %', '-')
    """
    if spread is None or spread.deviation is None:
        return format_share(spread.mean if spread else None)
    return f"{100 * spread.mean:.1f} ± {100 * spread.deviation:.1f} %"


def format_range(spread: Spread | None) -> str:
    """Write from where to where an accuracy goes, with the number of runs; nothing for one run."""
    if spread is None or spread.deviation is None:
        return ""
    return f"{format_share(spread.low)} to {format_share(spread.high)} in {format_count(spread.count, 'run')}"


def format_number(spread: Spread | None) -> str:
    """Write a number with its standard deviation."""
    if spread is None or spread.deviation is None:
        return format_figure(spread.mean if spread else None)
    return f"{format_figure(spread.mean)} ± {spread.deviation:.2g}"


def format_time(spread: Spread | None) -> str:
    """Write how long a run took, on average."""
    return "-" if spread is None else format_seconds(spread.mean)


def format_speed(spread: Spread | None) -> str:
    """Write images per second."""
    return "-" if spread is None else f"{spread.mean:,.0f} / s" if spread.mean >= 10 else f"{spread.mean:.1f} / s"


def format_memory(group: Group) -> str:
    """Write the peak of memory, out of the limit where there is one."""
    if group.peak_bytes is None:
        return "-"
    return used_of(group.peak_bytes, group.limit_bytes) if group.limit_bytes else format_bytes(group.peak_bytes)


def list_figures(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Every figure by its name, with the text for each group; what is unknown of all is left out."""
    figures = {
        **{
            name.replace("_", " "): [format_value(group.settings.get(name)) for group in groups]
            for name in list_differences(groups)
        },
        "state": [group.state for group in groups],
        "accuracy": [format_accuracy(group.accuracy) for group in groups],
        "loss": [format_number(group.loss) for group in groups],
        "epochs": [str(group.num_epochs) for group in groups],
        "peak memory": [format_memory(group) for group in groups],
        "time": [format_time(group.seconds) for group in groups],
        "images": [format_speed(group.images_per_second) for group in groups],
    }
    return {name: texts for name, texts in figures.items() if set(texts) != {"-"}}


def list_short_figures(groups: Sequence[Group]) -> dict[str, list[str]]:
    """The figures that have room where each group has a row: no setting that its name says already."""
    said = [name.replace("_", " ") for name in list_differences(groups) if _is_in_names(name, groups)]
    dropped = [*said, "images", *(["state"] if all(group.state == "finished" for group in groups) else [])]
    figures = {name: texts for name, texts in list_figures(groups).items() if name not in dropped}
    if "peak memory" in figures:
        figures["peak memory"] = ["-" if g.peak_bytes is None else format_bytes(g.peak_bytes) for g in groups]
    return figures


def _is_in_names(setting: str, groups: Sequence[Group]) -> bool:
    """Whether the names of trainings of a sweep say what they vary."""
    return all(f"{setting.replace('_', '-')}-" in group.name for group in groups)


def order_groups(groups: Sequence[Group]) -> list[Group]:
    """The most accurate first; those without an accuracy last, in the order given."""
    return sorted(groups, key=lambda group: -group.accuracy.mean if group.accuracy else 1.0)


def format_headline(groups: Sequence[Group]) -> str:
    """Say which is best, and by how much; where that is within the spread, say so."""
    ranked = [group for group in order_groups(groups) if group.accuracy]
    if not ranked or not ranked[0].accuracy:
        return f"{format_count(len(groups), 'training')} compared."
    if len(groups) == 1:
        return f"{groups[0].name}: accuracy {format_accuracy(ranked[0].accuracy)}."
    best = f"Best: {ranked[0].name}, accuracy {format_accuracy(ranked[0].accuracy)}"
    if len(ranked) < 2 or not ranked[1].accuracy:
        return f"{best}."
    lead = ranked[0].accuracy.mean - ranked[1].accuracy.mean
    spread = max(ranked[0].accuracy.deviation or 0.0, ranked[1].accuracy.deviation or 0.0)
    if lead == 0:
        return f"{best}, the same as {ranked[1].name}."
    close = "; that is within the spread of the folds" if spread and lead < spread else ""
    return f"{best}, {100 * lead:.1f} points ahead of {ranked[1].name}{close}."
