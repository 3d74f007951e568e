"""Who hears what happens in training."""

import logging
import threading

from fitroom.events import EventKind, Events, listening
from fitroom.runs import layout


def test_without_a_listener_the_logger_says_it(caplog):
    Events().tell("resumed", "resuming at batch 3")
    assert caplog.messages == ["fitroom: resuming at batch 3"]


def test_a_listener_hears_it_in_place_of_the_logger(caplog):
    heard = []
    with caplog.at_level(logging.DEBUG), listening(heard.append):
        events = Events()
        events.where = {"epoch": 1, "batch": 11}
        told = events.tell("out of memory", "less at once", smaller=32)
    assert heard == [
        {"kind": "out of memory", "message": "less at once", "epoch": 1, "batch": 11, "smaller": 32},
    ]
    assert heard == events.happened == [told]
    assert caplog.messages == []


def test_who_listens_further_out_hears_too_and_afterwards_nobody(caplog):
    outer, inner = [], []
    with listening(outer.append):
        with listening(inner.append):
            Events().tell("a", "first")
        Events().tell("b", "second")
    Events().tell("c", "third")
    assert [event["kind"] for event in outer] == ["a", "b"]
    assert [event["kind"] for event in inner] == ["a"]
    assert caplog.messages == ["fitroom: third"]


def test_what_another_thread_of_the_training_tells_is_heard(caplog):
    heard = []
    with listening(heard.append):
        events = Events()
        thread = threading.Thread(target=lambda: events.tell("checkpoint not written", "the disk is full"))
        thread.start()
        thread.join()
    assert [event["kind"] for event in heard] == ["checkpoint not written"]
    assert caplog.messages == []


def test_trainings_in_two_threads_each_have_their_own_listener():
    heard = {"one": [], "other": []}
    both_listen = threading.Barrier(2)

    def train(name):
        with listening(heard[name].append):
            both_listen.wait(timeout=30)
            Events().tell(name, "")
            both_listen.wait(timeout=30)

    threads = [threading.Thread(target=train, args=(name,)) for name in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: [event["kind"] for event in events] for name, events in heard.items()} == {
        "one": ["one"],
        "other": ["other"],
    }


def test_a_listener_whose_terminal_is_gone_stops_nothing():
    kept = []

    def hear(event):
        raise BrokenPipeError

    with listening(hear):
        Events(write=kept.append).tell("resumed", "going on")
    assert [event["kind"] for event in kept] == ["resumed"]


def test_the_layout_of_a_run_folder_names_every_kind_that_its_log_may_have():
    kinds = {kind for name, kind in vars(EventKind).items() if name.isupper()}
    described = " ".join(layout.__doc__.split())
    listed = described.partition("EventKind`: ")[2].partition(" checkpoints/")[0]
    assert set(listed.split(", ")) == kinds - {EventKind.MEMORY_NEARLY_FULL}
