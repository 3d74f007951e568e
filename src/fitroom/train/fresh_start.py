"""The micro-batch for a fresh process, where a process that ran out of memory cannot recover by itself.

What failed attempts leave behind, or what else a process holds, may take memory from smaller micro-batches that would
fit in a fresh process: a fragmented pool, what XLA keeps in TensorFlow's jitted steps, a tensor that is still in use.
"""

from fitroom.environment import restarts_so_far
from fitroom.errors import FreshStart

IN_THE_WAY = "what failed attempts left behind, or what else this process holds, may take the memory of smaller ones"


def fresh_start_after(*, first: int, last: int, most_done: int) -> int | None:
    """Choose the micro-batch for a fresh process, where this one failed with micro-batches from `first` down to `last`.

    One that succeeded here before (`most_done`, or 0) will succeed again. Where none did, only `first` was tried in a
    clean process: half of it is next; a quarter, where this process was a fresh start already. None where a single
    size was tried and none succeeded, since another process would end the same.

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
    """Say how to restart by hand, without a run folder."""
    size = fresh_start.micro_batch
    is_of_training = fresh_start.during == "training"
    setting = f"recipe=fitroom.Recipe(micro_batch={size})" if is_of_training else f"validation_batch_size={size}"
    known = ", which succeeded before" if fresh_start.is_known_to_fit else ", a fraction of what failed first"
    return (
        f"restart Python (in a notebook the kernel) and begin with {setting}{known}. With `run_dir` a run resumes so "
        "by itself when it is started again"
    )
