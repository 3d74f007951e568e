"""Pages from templates: every value that a template shows is escaped, unless it is `Markup`.

A template lies beside the module that fills it (`estimate/page.html` beside `estimate/page.py`) and is named by its
path within `fitroom/report`. Jinja2 is imported when the first template is filled, so that `import fitroom` is quick.

`Markup` says of a string that it is HTML already. It is made here and in `estimate/page.py`, which puts a drawn figure
into its page, and nowhere else.
"""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fitroom.report.shared.words import format_percent
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, **values: Any) -> "Markup":
    """Fill a template with values.

    Args:
        template: its path within `fitroom/report`, such as `"run/page.html"`.
        values: what the template shows, by name.
    """
    from markupsafe import Markup

    return Markup(_load_environment().get_template(template).render(values))


def render_macro(template: str, macro: str, *values: Any) -> "Markup":
    """Fill one macro of a template with values, in the macro's order."""
    from markupsafe import Markup

    return Markup(getattr(_load_environment().get_template(template).module, macro)(*values).strip())


def load_asset(name: str) -> "Markup":
    """Read a style sheet or a script of `shared/assets/`, to stand in a page as it is."""
    from markupsafe import Markup

    return Markup(files("fitroom.report").joinpath("shared", "assets", *name.split("/")).read_text(encoding="utf-8"))


def load_chart_script() -> "Markup":
    """Read the script that draws the charts of a page; it finds them in the JSON of the element `chart-data`."""
    library = load_asset("vendor/chart.umd.min.js")
    # Without the pointer to its source map, which is not here.
    return library.split("\n//# sourceMappingURL=")[0] + "\n" + load_asset("format.js") + load_asset("charts.js")


def hash_script(script: str) -> str:
    """Compute the hash that lets a browser run this script and no other, for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def dump_script_json(data: Any) -> "Markup":
    """Write JSON to stand in a `<script>`. A `<` could end that element, so there is none.

    >>> str(dump_script_json({"name": "</script>"}))
    '{"name":"\\\\u003c/script>"}'
    """
    from markupsafe import Markup

    return Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


@cache
def _load_environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fitroom", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"bytes": format_bytes, "number": "{:,}".format}
    environment.globals |= {"percent": format_percent}
    return environment
