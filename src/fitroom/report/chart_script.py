"""The script that draws the charts of a page, and what lets a browser run it and no other."""

import base64
import hashlib

from fitroom.report.markup import asset


def chart_script() -> str:
    """All of it; it finds its charts in the JSON of the element `run-data`."""
    return _without_map(asset("vendor/chart.umd.min.js")) + asset("format.js") + asset("run.js")


def hash_of(script: str) -> str:
    """For the page's Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _without_map(script: str) -> str:
    """The script without the pointer to its source map, which is not here."""
    return script.split("\n//# sourceMappingURL=")[0] + "\n"
