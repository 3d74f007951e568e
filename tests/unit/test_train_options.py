"""What `fitroom train` was begun with, and what may differ when the run is resumed."""

from fitroom.classify.options import TrainOptions, difference


def test_what_may_change_when_a_run_goes_on_is_no_difference():
    options = TrainOptions(folder="flowers", run_dir="a").to_dict()
    assert difference(options, options | {"budget": "8GiB", "keep": ["remat"], "workers": 3, "run_dir": "b"}) is None
    said = difference(options, options | {"model": "resnet50", "augment": False})
    assert said == "it was started with --model xception, --augment; now it is --model resnet50, --no-augment"
