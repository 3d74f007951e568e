"""How long `tf.data` takes to hand over each batch, counted by TensorFlow's own operation for that.

Keras's `fit` takes batches inside a graph, where Python cannot see the wait. `LatencyStatsDataset` sits at the end of
the dataset and adds up, in C++, the time of each call for the next element; it changes no element and no order.
"""

from typing import Any

import tensorflow as tf

_TAG = "fitroom wait"
_MICROSECONDS = 1e-6


class InputLatency:
    """Adds up the waits of all datasets that `count` returned."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            # Its name is its own: a resource of the same name would be shared.
            self._aggregator = tf.raw_ops.StatsAggregatorHandle(container="", shared_name=f"fitroom {id(self)}")

    def count(self, dataset: Any) -> Any:
        """A dataset with the same elements, whose waits are counted. What is no plain dataset is returned as it is."""
        if not isinstance(dataset, tf.data.Dataset):
            return dataset
        specs = tf.nest.flatten(dataset.element_spec)
        if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
            return dataset
        kinds = {"output_types": [spec.dtype for spec in specs], "output_shapes": [spec.shape for spec in specs]}
        with tf.device("CPU:0"):
            counted = tf.raw_ops.LatencyStatsDataset(
                input_dataset=tf.data.experimental.to_variant(dataset), tag=_TAG, **kinds
            )
            counted = tf.raw_ops.SetStatsAggregatorDataset(
                input_dataset=counted, stats_aggregator=self._aggregator, tag="", counter_prefix="", **kinds
            )
        return tf.data.experimental.from_variant(counted, dataset.element_spec).with_options(dataset.options())

    def total_seconds(self) -> float:
        """The seconds that all elements so far took, from asking to having them."""
        summary = tf.compat.v1.Summary.FromString(tf.raw_ops.StatsAggregatorSummary(iterator=self._aggregator).numpy())
        for value in summary.value:
            if value.tag == _TAG:
                return float(value.histo.sum * _MICROSECONDS)
        return 0.0

    def close(self) -> None:
        """Give the counters back. Datasets that still count keep theirs as long as they live."""
        tf.raw_ops.DestroyResourceOp(resource=self._aggregator, ignore_lookup_error=True)
