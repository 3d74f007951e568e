"""The figure and the page of a watch: what stands in them, for counted and uncounted memory."""

import json
import re
import struct
from xml.etree import ElementTree

import pytest

from fitroom.report.save import save_watch
from sample_watches import make_reading, make_summary, make_uncounted

READINGS = [make_reading(0.0), make_reading(1.0, epoch=1, input_wait=0.25)]
UNCOUNTED = [make_uncounted(0.0), make_uncounted(1.0)]


def texts_of(path):
    return ["".join(each.itertext()) for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_the_figure_names_devices_limit_epochs_and_shares(tmp_path):
    save_watch(make_summary(), READINGS, tmp_path / "memory.svg")
    texts = texts_of(tmp_path / "memory.svg")
    assert "1,000 steps in 2 minutes on JAX" in texts
    assert {"gpu:0: in use", "gpu:1: in use", "limit 4.00 GiB", "waiting for input", "GPU utilisation"} <= set(texts)
    assert " epoch 2" in texts


def test_where_no_device_counts_the_figure_shows_the_host(tmp_path):
    save_watch(make_summary(), UNCOUNTED, tmp_path / "memory.svg")
    texts = texts_of(tmp_path / "memory.svg")
    assert "host memory of the process" in texts
    assert not any(text.startswith("limit") for text in texts)


def test_a_single_reading_is_enough_for_a_png(tmp_path):
    save_watch(make_summary(), READINGS[:1], tmp_path / "memory.png")
    content = (tmp_path / "memory.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24])[0] >= 1500


@pytest.mark.parametrize(
    ("readings", "charts"),
    [(READINGS, ["memory-gpu:0", "memory-gpu:1", "host", "shares"]), (UNCOUNTED, ["host"])],
)
def test_the_page_has_a_chart_for_all_that_is_known(tmp_path, readings, charts):
    save_watch(make_summary(), readings, tmp_path / "memory.html")
    page = (tmp_path / "memory.html").read_text()
    data = json.loads(re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)[1])
    assert [chart["key"] for chart in data] == charts
    assert "training waited for it 25 % of the time" in page
