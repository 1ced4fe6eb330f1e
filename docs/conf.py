"""The documentation site: `make docs`. Pages are Markdown, the API is read from docstrings."""

import re

import tri_reduce

project = "tri_reduce"
author = "the tri_reduce authors"
release = version = tri_reduce.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"tri_reduce {version}"
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def ops_table() -> str:
    """The table of monoids as Markdown: an op that is added there appears here."""
    import torch

    lines = [
        "| op | tiles of state | identity (float32) | result of float32, of int32 | `initial=` | `accumulate=` | gradient |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, m in tri_reduce.MONOIDS.items():
        value = torch.int32 if m.ints_only else torch.float32
        results = [
            "-" if refused else str(m.out_for(kind)).removeprefix("torch.")
            for kind, refused in ((torch.float32, m.ints_only), (torch.int32, m.floats_only))
        ]
        identity = ", ".join(f"{i:g}" if isinstance(i, float) else str(i) for i in m.identity_for(value))
        marks = ["yes" if flag else "" for flag in (m.seed, m.accumulates, m.gradient)]
        lines.append(f"| `{name}` | {len(m.identity_for(value))} | {identity} | {', '.join(results)} | {' | '.join(marks)} |")
    return "\n".join(lines)


def as_rst(line: str) -> str:
    """A docstring's line: code in single backticks, as people write it, becomes a literal; what only looks like markup is escaped."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = re.split(r"`+([^`]+)`+", line)
    for n in range(0, len(parts), 2):  # outside code
        parts[n] = re.sub(r"\*(?=\S)|(?<=\w)_(?=\W|$)", lambda found: "\\" + found[0], parts[n])
    return "".join(part if n % 2 == 0 else f"``{part}``\\ " for n, part in enumerate(parts))


def setup(app):
    """Fill in what a page asks for, and read docstrings as they are written."""

    def fill(app, page, source):
        source[0] = source[0].replace("<!-- the table of ops -->", ops_table())

    def rewrite(app, what, name, obj, options, lines):
        lines[:] = [as_rst(line) for line in lines]

    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", rewrite, priority=400)  # before napoleon
