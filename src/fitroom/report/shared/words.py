"""Names and numbers for people, the same in every text, page and figure."""

_BACKEND_NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}


def format_backend(backend: str) -> str:
    """Write a backend's name as its makers do.

    >>> format_backend("torch"), format_backend("fake")
    ('PyTorch', 'fake')
    """
    return _BACKEND_NAMES.get(backend, backend)


def format_percent(part: int, whole: int) -> str:
    """Write a share of the whole; a share above zero is never shown as zero.

    >>> format_percent(949, 1000), format_percent(1, 10_000), format_percent(0, 0)
    ('94.9 %', '<0.1 %', '0.0 %')
    """
    share = 100 * part / whole if whole else 0.0
    return "<0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def format_share(share: float | None) -> str:
    """Write a share from 0 to 1 in percent; unknown is a dash.

    >>> format_share(0.9123), format_share(None)
    ('91.2 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def format_figure(value: float | None) -> str:
    """Write a number with its significant digits; unknown is a dash.

    >>> format_figure(0.31234), format_figure(1234.5), format_figure(0.00012345), format_figure(None)
    ('0.3123', '1,234', '0.0001234', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_duration(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> format_duration(7.2), format_duration(444), format_duration(7_500)
    ('7 seconds', '7 minutes', '2 h 05 min')
    """
    if seconds < 59.5:
        return format_count(round(seconds), "second")
    minutes = round(seconds / 60)
    return format_count(minutes, "minute") if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def format_count(count: int, noun: str) -> str:
    """Write a number with its noun.

    >>> format_count(1, "epoch"), format_count(1200, "image")
    ('1 epoch', '1,200 images')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut the middle out of a text of more than `width` characters.

    The end keeps most of the room, because the end of a layer's path says most.

    >>> shorten_middle("encoder/stage_3/block_11/attention/query", 25)
    'encode…11/attention/query'
    """
    if len(text) <= width:
        return text
    kept = max(width - len(ellipsis), 1)
    head = kept // 4
    return text[:head] + ellipsis + text[len(text) - (kept - head) :]
