"""Where a picture lies in the square that a model takes."""


def square_box(width: int, height: int) -> tuple[int, int, int, int]:
    """The largest square in the middle: left, top, right, bottom. In whole pixels: half of one would blur.

    >>> square_box(301, 200)
    (50, 0, 250, 200)
    """
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def inner_size(width: int, height: int, size: int) -> tuple[int, int]:
    """Width and height that keep their proportion, the longer one `size`.

    >>> inner_size(400, 300, 200)
    (200, 150)
    """
    longest = max(width, height)
    return max(1, round(width * size / longest)), max(1, round(height * size / longest))
