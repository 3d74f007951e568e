"""The names that Keras offers, read from its files: a wrong one is refused without the seconds that Keras takes."""

import importlib.util
import re
from functools import cache
from pathlib import Path

_EXPORTED = re.compile(r"\bas ([A-Z]\w*)")


@cache
def exported_names(module: str) -> tuple[str, ...]:
    """Classes and functions of `keras.<module>` that begin with a capital letter; empty where the file tells none.

    >>> "Adam" in exported_names("optimizers"), "Xception" in exported_names("applications")
    (True, True)
    """
    spec = importlib.util.find_spec("keras")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        try:
            return tuple(dict.fromkeys(_EXPORTED.findall((Path(folder) / module / "__init__.py").read_text("utf-8"))))
        except OSError:
            continue
    return ()
