"""What a fresh process is to begin with, where out of memory stays in the one that has it.

What a size that failed leaves behind, or what else a process holds, may be in the way of smaller ones that would fit
from the start: a pool in pieces, what XLA keeps in TensorFlow's jitted steps, a tensor that somebody holds.
"""

from fitroom.environment import restarts_so_far
from fitroom.errors import FreshStart

IN_THE_WAY = "what earlier attempts left behind, or what else this process holds, may be in the way of smaller ones"


def fresh_start_after(*, first: int, last: int, most_done: int) -> int | None:
    """The micro-batch for a fresh process, where this one failed with samples from `first` down to `last` at once.

    What went well here before (`most_done` samples at once, or 0) goes well again. Where nothing did, only the first
    size was tried with nothing in the way: half of it is next; a quarter, where this process was a fresh start already.
    None where there was one try and none before it, since another process would end the same.

    >>> fresh_start_after(first=8, last=1, most_done=0), fresh_start_after(first=8, last=1, most_done=4)
    (4, 4)
    >>> fresh_start_after(first=1, last=1, most_done=1), fresh_start_after(first=1, last=1, most_done=0)
    (1, None)
    """
    if most_done >= last:
        return min(most_done, first)
    if first == last:
        return None
    return -(-first // (4 if restarts_so_far() else 2))


def restart_words(fresh_start: FreshStart) -> str:
    """What somebody does who has no run folder, in a notebook or a script."""
    size = fresh_start.micro_batch
    is_of_training = fresh_start.during == "training"
    setting = f"recipe=fitroom.Recipe(micro_batch={size})" if is_of_training else f"validation_batch_size={size}"
    known = ", which went well before" if fresh_start.is_known_to_fit else ", a part of what failed first"
    return (
        f"restart Python (in a notebook the kernel) and begin with {setting}{known}. With `run_dir` a run goes on so "
        "by itself when it is started again"
    )
