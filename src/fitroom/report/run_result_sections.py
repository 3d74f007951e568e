"""The sections of a run's page about what the model gets right, and about the classes."""

from dataclasses import replace
from html import escape

from fitroom.report.markup import name, scrolling, table
from fitroom.report.run_record import Run
from fitroom.report.run_results import Results, Sample
from fitroom.report.run_words import fraction

_MAX_MATRIX = 40
_MAX_CONFUSIONS = 8
_MAX_CLASSES = 1000
_NUM_ANSWERS = 3
_MOST_OF_PICTURES = 500_000
"""How many characters of the page pictures may take."""
_DEEPEST = 0.6
"""How strong the deepest shade is, so that figures can be read on it in light and dark."""


def confusion(run: Run) -> str:
    """Which class is taken for which."""
    results = run.results
    if results is None or not results.num_pictures:
        return ""
    mistakes = results.confusions()[:_MAX_CONFUSIONS]
    if not mistakes:
        return "<p>Every picture was recognised.</p>"
    listed = table(
        ["what it is", "taken for", "times"],
        ([name(one.label), name(one.taken_for), f"{one.count:,}"] for one in mistakes),
        caption="Most frequent mistakes",
        kind="texts mistakes",
    )
    if len(results.classes) > _MAX_MATRIX:
        return listed + f'<p class="muted">With {len(results.classes):,} classes the whole matrix has no room here.</p>'
    matrix = scrolling(_matrix(results), "Confusion matrix", way="scroll-across")
    meaning = '<p class="muted">Rows of the matrix: what it is. Columns: what it was taken for.</p>'
    return f'<div class="apart">{matrix}{listed}</div>{meaning}'


def samples(run: Run) -> str:
    """Pictures with what the model takes them for, mistakes first."""
    if run.results is None or not run.results.samples:
        return ""
    body, room = "", _MOST_OF_PICTURES
    for sample in sorted(run.results.samples, key=lambda sample: sample.is_right):
        room -= len(sample.thumbnail or "")
        body += _sample(sample if room > 0 else replace(sample, thumbnail=None))
    return f'<div class="samples">{body}</div>'


def classes(run: Run) -> str:
    """How many pictures each class has, and how well it is found."""
    counts = run.job_fact("data", "counts")
    splits = {str(split): dict(of_split) for split, of_split in counts.items() if of_split} if counts else {}
    names = list(run.job_fact("classes") or (run.results.classes if run.results else ()))
    if not names or not splits:
        return ""
    trained = {each: int(splits.get("train", {}).get(each, 0)) for each in names}
    largest = max(trained.values()) or 1
    found = {each: index for index, each in enumerate(run.results.classes)} if run.results else {}
    heads = ["class", *map(escape, splits), *(["recall", "precision"] if found else [])]
    rows = []
    for each in names[:_MAX_CLASSES]:
        bar = f'<span class="of-class" style="--share:{100 * trained[each] / largest:.1f}%">{name(each)}</span>'
        counted = [f"{int(of_split.get(each, 0)):,}" for of_split in splits.values()]
        rows.append([bar, *counted, *(_quality(run.results, found.get(each)) if run.results else ())])
    shown = scrolling(table(heads, rows, kind="classes"), "All classes")
    meaning = (
        '<p class="muted">Bars: pictures to train on. Recall: of the pictures of a class, how many were recognised. '
        "Precision: of those taken for it, how many are.</p>"
    )
    return f"<p>{_balance(trained)}</p>{_warnings(run)}{shown}{meaning if found else ''}"


def _quality(results: Results, index: int | None) -> list[str]:
    if index is None:
        return [fraction(None)] * 2
    return [fraction(results.recall(index)), fraction(results.precision(index))]


def _warnings(run: Run) -> str:
    items = "".join(f"<li>{escape(str(said))}</li>" for said in run.job_fact("data", "warnings") or ())
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _balance(trained: dict[str, int]) -> str:
    largest, smallest = max(trained, key=trained.__getitem__), min(trained, key=trained.__getitem__)
    total = f"{sum(trained.values()):,} pictures to train on in {len(trained):,} classes"
    if not trained[smallest]:
        return f"{total}; {name(smallest)} has none."
    times = trained[largest] / trained[smallest]
    if times < 1.5:
        return f"{total}, about as many of each."
    return (
        f"{total}. The largest, {name(largest)}, has {times:.1f} times as many as the smallest, {name(smallest)}. "
        + ("<code>--class-weight balanced</code> evens this out." if times >= 3 else "")
    )


def _matrix(results: Results) -> str:
    heads = "".join(f'<th scope="col"><span>{name(each)}</span></th>' for each in results.classes)
    rows = []
    worst = max((mistake.count for mistake in results.confusions()), default=1)
    for index, counts in enumerate(results.confusion):
        # What is right is shaded by its share of the class, a mistake by how it compares with the most frequent one.
        wholes = [sum(counts) if column == index else worst for column in range(len(counts))]
        title = escape(results.classes[index])
        cells = "".join(
            f'<td class="{"right" if column == index else "wrong"}" style="--shade:{_DEEPEST * count / whole:.2f}">'
            f"{count:,}</td>"
            if count
            else "<td>0</td>"
            for column, (count, whole) in enumerate(zip(counts, wholes, strict=True))
        )
        rows.append(f'<tr><th scope="row" title="{title}">{name(results.classes[index])}</th>{cells}</tr>')
    body = "\n".join(rows)
    return (
        '<table class="matrix"><caption>Confusion matrix</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"
    )


def _sample(sample: Sample) -> str:
    word = "right" if sample.is_right else "wrong"
    file, label = escape(sample.file), escape(sample.label)
    picture = (
        f'<img src="{escape(sample.thumbnail)}" alt="{file}">'
        if sample.thumbnail
        else f'<span class="no-picture">{name(sample.file)}</span>'
    )
    answers = "".join(
        f'<li style="--share:{100 * min(max(probability, 0), 1):.0f}%"><span>{_answer(answer, sample)}</span>'
        f"<span>{100 * probability:.0f} %</span></li>"
        for answer, probability in sample.top[:_NUM_ANSWERS]
    )
    return (
        f'<figure class="sample {word}" title="{file}: {label}">{picture}'
        f"<figcaption><b><bdi>{label}</bdi></b><em>{word}</em></figcaption><ol>{answers}</ol></figure>"
    )


def _answer(answer: str, sample: Sample) -> str:
    """The true class stands out among the answers."""
    return f"<b>{name(answer)}</b>" if answer == sample.label else name(answer)
