"""Plots as real files: what is in them, and what is said when they cannot be made."""

import json
import re
import struct
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import sample_estimates
from fitroom.errors import InputError, MissingExtraError
from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import KINDS, Moment, Timeline
from fitroom.report.estimate.columns import MAX_COLUMNS, cut_columns, find_phase_bands
from fitroom.report.save import save_estimate
from fitroom.report.shared.palette import KIND_COLOURS
from sample_estimates import GIB, MIB, estimate_of, estimate_of_layers, long_timeline, small_estimate, small_timeline

SVG = "{http://www.w3.org/2000/svg}"
VOID_ELEMENTS = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """The text and the elements of a page, which must all be closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.elements and self.elements[-1][1].get("id") == "step-data" and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data.strip())


def saved(estimate: Estimate, path: Path) -> bytes:
    save_estimate(estimate, path)
    assert list(path.parent.iterdir()) == [path], "something was left beside it"
    return path.read_bytes()


def svg_texts(content: bytes) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(content).iter(f"{SVG}text")]


def test_png_is_a_picture_of_a_readable_size(tmp_path):
    content = saved(small_estimate(), tmp_path / "step.png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width >= 1500
    assert height >= 800


def test_svg_names_headline_kinds_phases_peak_and_limit(tmp_path):
    texts = svg_texts(saved(small_estimate(), tmp_path / "step.svg"))
    assert "TinyNet, batch 8, float32, JAX on NVIDIA L4" in texts
    assert "fits: 6.25 GiB of 16.00 GiB" in texts
    assert "peak 5.00 GiB at head, backward" in texts
    assert "↑ allocator limit 16.00 GiB" in texts
    assert {"forward", "backward", "update", "GiB"} <= set(texts)
    for kind, size in {"activations": "3.25 GiB", "workspace": "64.0 MiB", "weights": "512.0 MiB"}.items():
        assert texts[texts.index(kind) + 1] == size


def test_kinds_keep_their_colours_and_their_order_from_the_top(tmp_path):
    tree = ElementTree.fromstring(saved(small_estimate(), tmp_path / "step.svg"))
    areas = {
        group.get("id"): group[0].get("style") for group in tree.iter(f"{SVG}g") if group.get("id", "")[:5] == "kind-"
    }
    expected = ["workspace", "activations", "gradients", "input", "optimizer", "weights"]
    assert list(areas) == [f"kind-{kind}" for kind in expected]
    for kind in expected:
        assert f"fill: {KIND_COLOURS[kind]}" in areas[f"kind-{kind}"]
    assert set(KIND_COLOURS) == set(KINDS)
    assert len(set(KIND_COLOURS.values())) == len(KINDS)


def test_near_limit_is_a_dashed_line(tmp_path):
    far = saved(small_estimate(), tmp_path / "step.svg")
    near = saved(replace(small_estimate(), limit_bytes=9 * GIB), tmp_path / "step.svg")
    assert b"stroke-dasharray" not in far
    assert b"stroke-dasharray" in near
    assert "allocator limit 9.00 GiB" in svg_texts(near)


def test_what_does_not_fit_is_said_in_the_picture(tmp_path):
    texts = svg_texts(saved(replace(small_estimate(), limit_bytes=4 * GIB), tmp_path / "step.svg"))
    assert "does NOT fit: needs 6.25 GiB, 2.25 GiB more than the limit of 4.00 GiB" in texts


def test_the_same_estimate_gives_the_same_bytes(tmp_path):
    for suffix in ("svg", "png", "html"):
        path = tmp_path / f"step.{suffix}"
        assert saved(small_estimate(), path) == saved(small_estimate(), path)
        path.unlink()


@pytest.mark.parametrize("name", ["$x_{1$", '<b>&"x"', "a\\frac{", "层"])
@pytest.mark.filterwarnings("ignore:Glyph .* missing")
def test_a_layer_may_have_any_name(tmp_path, name):
    timeline = Timeline(
        buffers=small_timeline().buffers, moments=tuple(replace(m, layer=name) for m in small_timeline().moments)
    )
    assert f"peak 5.00 GiB at {name}, backward" in svg_texts(saved(estimate_of(timeline), tmp_path / "step.svg"))


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
@pytest.mark.parametrize(
    "estimate",
    [
        estimate_of_layers({"dense": 3}),
        estimate_of(Timeline(buffers=(), moments=(Moment(name="a", layer=None, phase=None),))),
        replace(small_estimate(), limit_bytes=1),
    ],
    ids=["unknown phases", "nothing in use", "tiny limit"],
)
def test_odd_estimates_can_be_drawn(tmp_path, estimate, suffix):
    assert saved(estimate, tmp_path / f"step.{suffix}")


def test_unit_follows_the_size(tmp_path):
    assert "MiB" in svg_texts(saved(estimate_of_layers({"dense": 300 * MIB}), tmp_path / "step.svg"))


def test_a_long_step_gives_a_small_file_with_its_exact_peak(tmp_path):
    estimate = estimate_of(long_timeline(30_000))
    content = saved(estimate, tmp_path / "step.svg")
    assert len(content) < 200_000
    assert "peak 66.0 MiB at layer_0, backward" in svg_texts(content)


def test_columns_keep_every_maximum_and_the_peak():
    timeline = long_timeline(30_001)
    cut = cut_columns(timeline)
    assert len(cut.shown) == MAX_COLUMNS
    assert (cut.edges[0], cut.edges[-1]) == (0, 30_001)
    assert timeline.peak_moment in cut.shown
    for column, moment in enumerate(cut.shown):
        stretch = timeline.usage_bytes[cut.edges[column] : cut.edges[column + 1]]
        assert sum(sizes[column] for sizes in cut.bytes_of.values()) == max(stretch) == timeline.usage_bytes[moment]


def test_a_short_step_has_a_column_for_each_moment():
    cut = cut_columns(small_timeline())
    assert cut.shown == (0, 1, 2, 3, 4, 5)
    assert cut.bytes_of["activations"] == (2 * GIB, 2 * GIB + 1280 * MIB, 2 * GIB + 1280 * MIB, 2 * GIB, 0, 0)
    assert "other" not in cut.bytes_of


def test_phase_bands_leave_out_what_is_unknown():
    bands = [(band.phase, band.first, band.end) for band in find_phase_bands(small_timeline())]
    assert bands == [("forward", 0, 2), ("backward", 2, 4), ("update", 4, 5)]


def test_phase_bands_go_by_the_majority():
    mixed = tuple(
        Moment(name="op", layer=None, phase="update" if at % 5 == 0 else "forward" if at < 300 else "backward")
        for at in range(600)
    )
    bands = find_phase_bands(Timeline(buffers=(), moments=mixed))
    assert [(band.phase, band.first, band.end) for band in bands] == [("forward", 0, 300), ("backward", 300, 600)]


def test_phases_are_read_once_and_in_the_order_they_run():
    """A compiler puts statistics and metrics of the forward pass last."""
    phases = ["forward"] * 300 + ["backward"] * 440 + ["update"] * 10 + ["forward"] * 60
    moments = tuple(Moment(name="op", layer=None, phase=phase) for phase in phases)
    bands = find_phase_bands(Timeline(buffers=(), moments=moments))
    assert [(band.phase, band.first, band.end) for band in bands] == [
        ("forward", 0, 300),
        ("backward", 300, 740),
        ("update", 740, 810),
    ]
    twice = (moments[:740]) * 2  # two micro-batches
    bands = find_phase_bands(Timeline(buffers=(), moments=twice))
    assert [band.phase for band in bands] == ["forward", "backward", "forward", "backward"]


def test_page_carries_all_figures_and_every_layer(tmp_path):
    layers = {f"block_{index}": (100 - index) * MIB for index in range(40)}
    estimate = replace(estimate_of_layers(layers), notes=("Mind the gap.",), versions={"jax": "0.9.0"})
    page = Page(saved(estimate, tmp_path / "step.html").decode())
    text = " ".join(page.text)
    assert "TinyNet, batch 8, float32, JAX on NVIDIA L4" in text
    assert "fits: 3.93 GiB of 16.00 GiB" in text
    for size in ("3.14 GiB", "3.93 GiB", "4.43 GiB"):
        assert size in text
    for layer in layers:
        assert layer in page.text
    assert "Mind the gap." in text
    assert "jax 0.9.0" in text
    assert "unknown" in text
    assert sum(tag == "svg" for tag, _ in page.elements) == 2


def test_page_loads_nothing(tmp_path):
    source = saved(small_estimate(), tmp_path / "step.html").decode()
    assert not re.search(r"https?:|//\w+\.\w|@import|url\((?!#)", source)
    for tag, attributes in Page(source).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert "src" not in attributes
        assert (attributes.get("xlink:href") or "#").startswith("#")


def test_ids_of_the_page_are_unique_and_every_reference_is_met(tmp_path):
    source = saved(small_estimate(), tmp_path / "step.html").decode()
    ids = re.findall(r'\bid="([^"]+)"', source)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", source)) | set(re.findall(r'href="#([^"]+)"', source)) <= set(ids)


def test_page_escapes_what_comes_from_the_model(tmp_path):
    name = '<b>&"x"</script><script>alert(1)</script>'
    moments = tuple(replace(m, layer=name, name=name) for m in small_timeline().moments)
    buffers = tuple(replace(b, layer=name) for b in small_timeline().buffers)
    estimate = replace(
        estimate_of(Timeline(buffers=buffers, moments=moments)),
        model=name,
        gpu=name,
        notes=(name,),
        versions={name: name},
    )
    source = saved(estimate, tmp_path / "step.html").decode()
    assert "<b>&" not in source
    assert "alert(1)</script>" not in source
    page = Page(source)
    assert sum(tag == "script" for tag, _ in page.elements) == 2
    assert name in page.text
    assert json.loads(page.data)["layers"] == [name]


def test_hover_data_holds_each_operation_with_its_bytes(tmp_path):
    data = json.loads(Page(saved(small_estimate(), tmp_path / "step.html").decode()).data)
    assert data["names"] == [f"op.{index}" for index in range(6)]
    assert [data["layers"][index] for index in data["layer"]] == ["stem", "head", "head", "stem", "stem", None]
    assert data["phases"] == ["forward", "forward", "backward", "backward", "update", None]
    totals = [sum(sizes) for sizes in zip(*(kind["bytes"] for kind in data["kinds"]), strict=True)]
    assert tuple(totals) == small_timeline().usage_bytes


@pytest.mark.parametrize("name", ["step.pdf", "step", "step.svg.gz"])
def test_other_suffixes_are_refused_with_the_three_that_work(tmp_path, name):
    with pytest.raises(InputError, match=re.escape(".svg, .png or .html")) as caught:
        save_estimate(small_estimate(), tmp_path / name)
    assert name in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_suffix_is_read_without_case(tmp_path):
    assert saved(small_estimate(), tmp_path / "STEP.PNG").startswith(b"\x89PNG")


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="folder that is there") as caught:
        save_estimate(small_estimate(), tmp_path / "no" / "step.svg")
    assert str(tmp_path / "no") in (caught.value.hint or "")


def test_unwritable_place_is_said_and_nothing_is_left_behind(tmp_path):
    (tmp_path / "step.svg").mkdir()
    with pytest.raises(InputError, match="could not be written") as caught:
        save_estimate(small_estimate(), tmp_path / "step.svg")
    assert str(tmp_path / "step.svg") in caught.value.message
    assert list(tmp_path.iterdir()) == [tmp_path / "step.svg"]


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="matplotlib") as caught:
        save_estimate(small_estimate(), tmp_path / "step.svg")
    assert caught.value.hint == "pip install 'fitroom[plot]'"


def test_matplotlib_is_imported_late_and_its_settings_are_left_alone(tmp_path):
    program = f"""
import sys; sys.path.insert(0, {str(Path(sample_estimates.__file__).parent)!r})
from pathlib import Path
import sample_estimates
from sample_estimates import small_estimate
from fitroom.report.save import save_estimate
assert "matplotlib" not in sys.modules
import matplotlib
matplotlib.rcParams["font.size"] = 33
save_estimate(small_estimate(), Path({str(tmp_path / "step.svg")!r}))
assert matplotlib.rcParams["font.size"] == 33
assert matplotlib.rcParams["svg.fonttype"] == "path"
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert b"font-size: 33px" not in (tmp_path / "step.svg").read_bytes()
