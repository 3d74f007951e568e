"""PyTorch's DataLoader and random state."""

import itertools

import numpy as np
import pytest
import torch

from fitroom.errors import HostMemoryError, InputError
from fitroom.inputs import randomness, source_of
from sample_sources import check_goes_on_exactly, trained

X = torch.arange(20.0).reshape(10, 2)
Y = torch.arange(10)


def samples(batches):
    return [batch.y.tolist() for batch in batches]


class Noisy(torch.utils.data.Dataset):
    """Samples with noise from PyTorch's generator, NumPy's, and one of its own."""

    def __init__(self):
        self.own = np.random.default_rng(5)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return X[index] + torch.randn(()) + np.random.normal() + self.own.normal(), Y[index]


def test_a_loader_is_one_pass_an_epoch():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)
    source = source_of(loader)
    assert (source.num_batches, source.batch_size, source.num_samples) == (3, 4, 10)
    assert source.peek().size == 4
    for epoch in range(2):
        batches = list(source.epoch(epoch))
        assert samples(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert all(type(batch.x) is np.ndarray for batch in batches)
    assert source_of(loader, class_weight={1: 2.0}).peek().sample_weight.tolist() == [1.0, 2.0, 1.0, 1.0]


def test_a_shuffled_loader_has_every_sample_once_and_another_order_each_epoch():
    torch.manual_seed(1)
    source = source_of(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4, shuffle=True))
    orders = [list(itertools.chain(*samples(source.epoch(epoch)))) for epoch in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({str(order) for order in orders}) == 3


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("steps", [None, 2])
def test_a_loader_goes_on_exactly(own_generator, steps):
    def make():
        torch.seed()  # another process has another state
        options = {"generator": torch.Generator()} if own_generator else {}
        loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, **options)
        return source_of(loader, steps_per_epoch=steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fitroom.inputs.streams.warn_of_end", lambda *_: None)  # three batches in steps of two
        check_goes_on_exactly(make)


def test_a_loader_with_processes_goes_on_exactly():
    class Marked(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return X[index] + torch.randn(()), Y[index]

    def make():
        torch.seed()
        return source_of(torch.utils.data.DataLoader(Marked(), batch_size=4, shuffle=True, num_workers=1))

    check_goes_on_exactly(make, epochs=1)
    assert "1 worker" in make().resume_note


def test_a_loader_of_unknown_length_is_read_to_its_end():
    class Streamed(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from zip(X, Y, strict=True)

    source = source_of(torch.utils.data.DataLoader(Streamed(), batch_size=4))
    assert source.num_batches is None
    assert [len(samples(source.epoch(epoch))) for epoch in range(2)] == [3, 3]


def test_errors_of_a_loader_come_at_their_turn():
    class Broken(Noisy):
        def __getitem__(self, index):
            if index == 5:
                raise OSError("unreadable")
            if index == 9:
                return torch.empty(2**50), Y[index]
            return super().__getitem__(index)

    batches = source_of(torch.utils.data.DataLoader(Broken(), batch_size=4)).epoch(0)
    next(batches)
    with pytest.raises(OSError, match="unreadable"):
        next(batches)
    last = source_of(torch.utils.data.DataLoader(Broken(), batch_size=2, sampler=[0, 1, 8, 9])).epoch(0)
    next(last)
    with pytest.raises(HostMemoryError, match="batch 1 of 2 samples was being made"):
        next(last)


def test_an_empty_loader_is_an_error():
    with pytest.raises(InputError, match="no batches"):
        source_of(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[:0], Y[:0])))


def test_random_state_of_pytorch_comes_back():
    torch.manual_seed(4)
    state = randomness.capture()
    first = torch.randn(3).tolist()
    torch.manual_seed(5)
    randomness.restore(state)
    assert torch.randn(3).tolist() == first


def test_tensors_with_gradients_are_data_too():
    batch = source_of(X.clone().requires_grad_(), Y, batch_size=4, shuffle=True).peek()
    assert batch.x[:, 0].tolist() == [2.0 * number for number in batch.y]
    assert len(trained(source_of(X, Y, batch_size=4), epochs=1)) == 3
