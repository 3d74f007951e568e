"""Draw flowers of five kinds: JPEG files in a folder for each kind, easy to learn and quick to make.

    python examples/drawn_flowers.py flowers --count 400 --size 96 --seed 7

Every picture depends on its kind, its number and the seed alone: the same call draws the same files.
"""

import argparse
import colorsys
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Color = tuple[int, int, int]
Point = tuple[float, float]

FINER = 3  # drawn this many times larger, then reduced: smooth edges
SKIES = ((0.55, 0.35, 0.95), (0.58, 0.15, 0.90), (0.08, 0.30, 0.97), (0.75, 0.20, 0.80), (0.62, 0.55, 0.45))


def draw_flowers(folder: Path, count: int = 400, size: int = 96, seed: int = 0) -> Path:
    """Draw `count` pictures, about `size` pixels high, evenly over the kinds; returns `folder`."""
    for index, (kind, paint) in enumerate(KINDS.items()):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count // len(KINDS) + (index < count % len(KINDS))):
            chance = np.random.default_rng([seed, index, number])
            picture = Sketch(size, chance)
            for _ in range(chance.choice([1, 1, 1, 2, 3])):
                paint(picture)
            picture.finished().save(folder / kind / f"{number:04}.jpg", quality=int(chance.integers(75, 96)))
    return folder


class Sketch:
    """A meadow under some sky, to paint flowers on."""

    def __init__(self, size: int, chance: np.random.Generator) -> None:
        self.chance = chance
        self.shape = (int(size * chance.uniform(1.0, 1.35)), size)
        width, height = (side * FINER for side in self.shape)
        self.unit = height
        self.image = Image.new("RGB", (width, height), self.color(*SKIES[chance.integers(len(SKIES))]))
        self.draw = ImageDraw.Draw(self.image)
        self.meadow(width, height)

    def meadow(self, width: int, height: int) -> None:
        """Blurred grass and spots of light: a background that says nothing about the flower."""
        horizon = self.between(0.2, 0.9) * height
        self.draw.rectangle((0, horizon, width, height), self.color(self.between(0.22, 0.36), 0.55, 0.55))
        for _ in range(40):
            x, y, r = self.between(0, width), self.between(0, height), self.between(0.02, 0.12) * height
            hue, bright = (0.3, 0.5) if y > horizon else (self.between(0, 1), 0.9)
            self.disc((x, y), r, self.color(hue, 0.3, bright, spread=0.12))
        self.image.paste(self.image.filter(ImageFilter.GaussianBlur(height / 40)))

    def between(self, low: float, high: float) -> float:
        """A number in this range."""
        return float(self.chance.uniform(low, high))

    def color(self, hue: float, saturation: float, value: float, spread: float = 0.05) -> Color:
        """A colour near this one."""
        near = [hue + self.between(-0.015, 0.015)]
        near += [min(max(part + self.between(-spread, spread), 0), 1) for part in (saturation, value)]
        red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(near[0] % 1, near[1], near[2]))
        return red, green, blue

    def place(self, smallest: float, largest: float) -> tuple[Point, float]:
        """Where a flower stands, and its radius: in the middle square, which a crop leaves."""
        radius = self.between(smallest, largest) * self.unit
        room = self.unit / 2 - 0.7 * radius
        across = self.image.width / 2 + self.between(-room, room)
        return (across, self.between(0.7 * radius, self.unit - 1.1 * radius)), radius

    def disc(self, at: Point, radius: float, color: Color) -> None:
        """A filled circle."""
        self.draw.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), color)

    def petal(self, at: Point, angle: float, length: float, width: float, color: Color, roundness: float = 1.0) -> None:
        """A leaf shape from `at` outwards; 1 is an almond, less is blunter, more is slimmer."""
        along = np.linspace(0, 1, 14)
        across = width / 2 * np.sin(math.pi * along**0.8) ** roundness
        x, y = np.concatenate([along, along[::-1]]) * length, np.concatenate([across, -across[::-1]])
        turned_x, turned_y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
        self.draw.polygon(list(zip(at[0] + turned_x, at[1] + turned_y, strict=True)), color, shade(color, 0.82))

    def ring(self, at: Point, petals: int, length: float, width: float, color: Color, roundness: float = 1.0) -> None:
        """Petals all round, no two quite alike."""
        start = self.between(0, 2 * math.pi)
        for angle in start + 2 * math.pi * np.arange(petals) / petals:
            tint = shade(color, self.between(0.9, 1.05))
            self.petal(at, angle + self.between(-0.08, 0.08), length * self.between(0.88, 1.05), width, tint, roundness)

    def stem(self, at: Point, radius: float, leaves: int = 2) -> None:
        """Down and out of the picture, with leaves on the way."""
        green = self.color(0.31, 0.65, 0.45)
        foot = (at[0] + self.between(-0.5, 0.5) * radius, self.unit * 1.02)
        self.draw.line([at, foot], green, max(2, round(radius * 0.1)))
        for leaf in range(leaves):
            part = self.between(0.45, 0.9)
            joint = (at[0] + part * (foot[0] - at[0]), at[1] + part * (foot[1] - at[1]))
            angle = -math.pi / 2 + (0.9 if leaf % 2 else -0.9) * self.between(0.6, 1.2)
            self.petal(joint, angle, radius * self.between(0.6, 1.0), radius * 0.3, green)

    def finished(self) -> Image.Image:
        """Reduced, in the light of some day, and with the grain of a camera."""
        pixels = np.asarray(self.image.resize(self.shape, Image.Resampling.LANCZOS), "float32")
        pixels = (pixels - 128) * self.between(0.8, 1.1) + 128 + self.between(-20, 20)
        pixels += self.chance.normal(0, self.between(2, 9), pixels.shape)
        return Image.fromarray(pixels.clip(0, 255).astype("uint8"))


def shade(color: Color, factor: float) -> Color:
    """The colour darker, or lighter above 1."""
    red, green, blue = (min(255, round(part * factor)) for part in color)
    return red, green, blue


def daisy(sketch: Sketch) -> None:
    """White rays about a yellow button."""
    at, radius = sketch.place(0.18, 0.38)
    sketch.stem(at, radius)
    hue, saturation = one_of(sketch, ((0.1, 0.03), (0.92, 0.12), (0.75, 0.12)))
    sketch.ring(
        at, int(sketch.chance.integers(11, 18)), radius, radius * 0.27, sketch.color(hue, saturation, 0.97), 0.6
    )
    sketch.disc(at, radius * 0.27, sketch.color(0.13, 0.85, 0.95))
    sketch.disc((at[0], at[1] + radius * 0.05), radius * 0.17, sketch.color(0.11, 0.9, 0.88))


def dandelion(sketch: Sketch) -> None:
    """A yellow tuft, or the ball of seeds that comes of it."""
    at, radius = sketch.place(0.16, 0.34)
    sketch.stem(at, radius, leaves=0)
    if sketch.chance.random() < 0.35:
        white = sketch.color(0.6, 0.03, 0.97)
        for number in range(60):
            tip = seed_place(at, radius, number, 60)
            sketch.draw.line([at, tip], shade(white, 0.8), max(1, round(radius * 0.03)))
            sketch.disc(tip, radius * 0.1, shade(white, 0.7))
            sketch.disc(tip, radius * 0.08, white)
        sketch.disc(at, radius * 0.14, sketch.color(0.09, 0.5, 0.45))
        return
    yellow = sketch.color(0.135, 0.95, 0.98)
    for part, tint in ((1.0, 0.92), (0.78, 0.98), (0.55, 1.0), (0.32, 0.9)):
        sketch.ring(at, 30, radius * part, radius * 0.13, shade(yellow, tint), 1.4)


def rose(sketch: Sketch) -> None:
    """Petals in petals, darker towards the heart."""
    at, radius = sketch.place(0.2, 0.38)
    sketch.stem(at, radius)
    hue, saturation, value = one_of(
        sketch, ((0.98, 0.85, 0.85), (0.95, 0.5, 0.95), (0.06, 0.4, 0.98), (0.13, 0.15, 0.97))
    )
    color = sketch.color(hue, saturation, value)
    for layer, part in enumerate((1.0, 0.82, 0.64, 0.46, 0.3)):
        start = sketch.between(0, 2 * math.pi)
        for angle in start + 2 * math.pi * np.arange(6 - layer) / (6 - layer):
            reach, size = radius * part * 0.55, radius * part * 0.5
            middle = (at[0] + reach * math.cos(angle), at[1] + reach * math.sin(angle))
            sketch.disc(middle, size * 1.05, shade(color, 0.62 - 0.04 * layer))
            sketch.disc(middle, size, shade(color, sketch.between(0.97, 1.05) - 0.07 * layer))
    turn = sketch.between(0, 2 * math.pi)
    spiral = [(radius * 0.03 * step, turn + step * 0.75) for step in range(10)]
    points = [(at[0] + r * math.cos(a), at[1] + r * math.sin(a)) for r, a in spiral]
    sketch.draw.line(points, shade(color, 0.45), max(1, round(radius * 0.06)), joint="curve")


def sunflower(sketch: Sketch) -> None:
    """Pointed golden petals about a dark disc of seeds."""
    at, radius = sketch.place(0.24, 0.44)
    sketch.stem(at, radius)
    gold = sketch.color(0.12, 0.95, 0.96)
    sketch.ring(at, 17, radius, radius * 0.32, shade(gold, 0.86), 1.1)
    sketch.ring(at, 17, radius * 0.9, radius * 0.3, gold, 1.1)
    sketch.disc(at, radius * 0.47, sketch.color(0.07, 0.75, 0.3))
    seed = sketch.color(0.08, 0.65, 0.5)
    for number in range(70):
        sketch.disc(seed_place(at, radius * 0.44, number, 70), radius * 0.025, seed)


def tulip(sketch: Sketch) -> None:
    """A cup from the side, on a stem with long leaves."""
    at, radius = sketch.place(0.2, 0.36)
    lean = sketch.between(-0.25, 0.25)
    green = sketch.color(0.33, 0.55, 0.5)
    foot = (at[0] - lean * radius, sketch.unit * 1.02)
    base = (at[0], at[1] + radius * 0.6)
    sketch.draw.line([base, foot], green, max(2, round(radius * 0.14)))
    for side in (-1, 1):
        sketch.petal(foot, -math.pi / 2 + side * sketch.between(0.15, 0.4), radius * 1.9, radius * 0.4, green)
    hue, saturation, value = one_of(
        sketch, ((0.99, 0.85, 0.9), (0.93, 0.5, 0.95), (0.14, 0.75, 0.97), (0.78, 0.5, 0.75), (0.06, 0.8, 0.97))
    )
    color = sketch.color(hue, saturation, value)
    for angle, tint, width in (
        (-0.16, 0.75, 0.7),
        (0.16, 0.75, 0.7),
        (-0.42, 0.9, 0.75),
        (0.42, 0.93, 0.75),
        (0, 1.04, 0.8),
    ):
        length = radius * sketch.between(1.4, 1.6)
        sketch.petal(base, lean + angle - math.pi / 2, length, radius * width, shade(color, tint), 0.8)


def seed_place(at: Point, radius: float, number: int, seeds: int) -> Point:
    """Seeds as nature packs them, each a golden angle from the last."""
    reach, angle = radius * math.sqrt(number / seeds), number * math.pi * (3 - math.sqrt(5))
    return at[0] + reach * math.cos(angle), at[1] + reach * math.sin(angle)


def one_of(sketch: Sketch, choices: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """One of the colours that this kind comes in."""
    return choices[sketch.chance.integers(len(choices))]


KINDS = {"daisy": daisy, "dandelion": dandelion, "rose": rose, "sunflower": sunflower, "tulip": tulip}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Draw flowers of five kinds, a folder for each kind.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=400, help="pictures in all (default: %(default)s)")
    parser.add_argument("--size", type=int, default=96, help="their height in pixels (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other flowers (default: %(default)s)")
    options = parser.parse_args()
    draw_flowers(options.folder, options.count, options.size, options.seed)
    print(f"{options.count} pictures of {len(KINDS)} kinds in {options.folder}")


if __name__ == "__main__":
    main()
