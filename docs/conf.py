"""How the documentation is built: `make docs`. Its pages are Markdown that reads well without being built."""

from fitroom import __version__

project = "fitroom"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_heading_anchors = 3  # links to headings: training.md#which-size
highlight_language = "none"  # blocks that name no language are commands and their output
smartquotes = False  # --flags stay what they are
default_role = "code"  # docstrings have `names` in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "fitroom"
html_css_files = ["code.css"]
html_static_path = ["static"]
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
