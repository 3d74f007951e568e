"""Where the phases of real steps on PyTorch are seen to begin and end."""

import keras
import numpy as np
import torch

import fitroom
from fitroom.backends.torch.phases import marking_phases

STEP = ["backward begins", "backward ends", "update begins", "update ends"]


def small_net():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


DATA = (np.zeros((8, 6), "float32"), np.zeros(8, "int32"))


def test_every_step_of_fit_is_marked_and_nothing_stays_replaced():
    own = torch.Tensor.backward, keras.optimizers.Optimizer.apply
    marks, also = [], []
    with marking_phases(marks.append), marking_phases(also.append):
        small_net().fit(*DATA, batch_size=4, verbose=0)
    assert marks == also == STEP * 2
    assert (torch.Tensor.backward, keras.optimizers.Optimizer.apply) == own


def test_micro_batches_are_several_backward_passes_and_one_update():
    marks = []
    with marking_phases(marks.append):
        fitroom.fit(small_net(), *DATA, batch_size=8, recipe=fitroom.Recipe(micro_batch=4), verbose=0)
    assert marks == [*STEP[:2], *STEP]


def test_a_loop_of_ones_own_is_marked():
    model, marks = small_net(), []
    x, y = map(torch.from_numpy, DATA)
    with marking_phases(marks.append):
        model.zero_grad()
        model.loss(y, model(x)).backward()
        with torch.no_grad():
            model.optimizer.apply([weight.value.grad for weight in model.trainable_weights], model.trainable_weights)
    assert marks == STEP
