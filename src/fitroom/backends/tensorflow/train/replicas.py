"""The replicas of a `tf.distribute` strategy: their shares of a batch, and values that each of them has its own of."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from fitroom.backends.tensorflow.train.host import as_tensor, as_tensors, split_batch
from fitroom.batch import Batch
from fitroom.distribution.current import current_distribution
from fitroom.distribution.shares import share_out


class Replicas:
    """The replicas of one strategy."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.count: int = strategy.num_replicas_in_sync

    @property
    def weights(self) -> tuple[float, ...]:
        """The share of each replica in a batch, in proportion."""
        distribution = current_distribution()
        if distribution is None or distribution.num_devices != self.count:  # a strategy of the user's own
            return (1.0,) * self.count
        return distribution.weights

    def largest_share(self, batch_size: int) -> int:
        """The most samples of a batch that one replica gets."""
        return max(share_out(batch_size, self.weights))

    def split(self, batch: Batch, micro_batch: int) -> list[list[Batch]]:
        """The micro-batches of a batch, each a list with what every replica gets of it, which may be no sample."""
        sizes = share_out(batch.size, self.weights)
        count = -(-max(sizes) // micro_batch)
        by_replica: list[list[Batch]] = []
        start = 0
        for size in sizes:
            own = split_batch(batch.slice(start, start + size), -(-size // count)) if size else []
            by_replica.append([*own, *[batch.slice(0, 0)] * (count - len(own))])
            start += size
        return [list(parts) for parts in zip(*by_replica, strict=True)]

    def values(self, each: Sequence[Any]) -> Any:
        """One value of what each replica has of it; structures of arrays, as batches hold them."""
        flat = [tf.nest.flatten(value) for value in each]
        joined = [self._value(values) for values in zip(*flat, strict=True)]
        return tf.nest.pack_sequence_as(each[0], joined)

    def data(self, parts: Sequence[Batch], *, packed: bool = False) -> Any:
        """What each replica gets of a micro-batch, as a step takes it; `packed` as the user's own step does."""
        tensors = [as_tensors(part) for part in parts]
        return self.values([part.data() if packed else part.unpacked() for part in tensors])

    def run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs `function` on every replica."""
        return lambda *arguments: self.strategy.run(function, args=arguments)

    def join(self, outputs: Any) -> list[Any]:
        """What each replica put out, in their order."""
        flat = [self.strategy.experimental_local_results(output) for output in tf.nest.flatten(outputs)]
        return [tf.nest.pack_sequence_as(outputs, list(values)) for values in zip(*flat, strict=True)]

    def _value(self, values: Sequence[Any]) -> Any:
        if values[0] is None:
            return None
        tensors = [as_tensor(value) for value in values]
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )


def largest_micro_batch(parts: Sequence[Batch]) -> int:
    """The most samples that a replica gets of a micro-batch."""
    return max(part.size for part in parts)
