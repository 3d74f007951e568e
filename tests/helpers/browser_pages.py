"""Pages in a real Chromium: opened, with all they complain of and ask for."""

from pathlib import Path
from typing import Any

HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 1">',
    "</script><script>window.hit = 1</script>",
    "שושנה",
    "花" * 80,
    "a_long_name_without_a_break_" * 8,
)
COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
  return [...found];
}"""


class Opened:
    """A page, with all it complained of and all it asked for."""

    def __init__(self, browser: Any, report: Path, *, width: int = 1200, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def chart(self, key: str) -> Any:
        return self.page.locator(f'canvas[data-chart="{key}"]')

    def tooltip(self, key: str) -> dict[str, Any]:
        """What the chart shows under the pointer; empty where it shows nothing."""
        return self.chart(key).evaluate(
            """canvas => {
              const { opacity, title, body, footer } = Chart.getChart(canvas).tooltip;
              return opacity ? { title, lines: body.flatMap((one) => one.lines), footer } : {};
            }"""
        )

    def emulate_media(self, **media: str) -> None:
        """Another medium, once the page was told of it, which a browser does with its next frame."""
        self.page.emulate_media(**media)
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    @property
    def is_within_its_width(self) -> bool:
        return self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
