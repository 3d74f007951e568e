"""Values made readable: in a terminal, in a notebook, as figures and as pages.

By subject: `estimate/`, `plan/`, `segments/`, `kernels/`, `run/`, `compare/`, `progress/`, `watch/`, `loops/`,
`explain/`, `doctor/`. Where a subject has them, `words.py` has the sentences, `text.py` the text for a terminal,
`page.py` and the template `page.html` the HTML page, `figure.py` the drawing. `shared/` has what the subjects have in
common. Across subjects: `notebook.py`, `facts.py`, `save.py`, and `show.py`, through which `fitroom.display` shows
values.
"""
