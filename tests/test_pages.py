"""Every page tells the truth: its Python runs, its commands parse, its links and the functions it names exist, its messages are raised.

A comment before a block says where it can run: `<!-- runs: kernels -->` in the interpreter or on a GPU, `<!-- runs: compiled -->` in a
process that compiles kernels, `<!-- runs: gpu -->`.
"""

import ast
import functools
import importlib
import inspect
import re
import runpy
import shlex
from pathlib import Path

import pytest
from devices import ON_GPU, REFERENCE

import tri_reduce
from tri_reduce import autotune, cli, plans, registry

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]
BLOCK = re.compile(r"(?:<!-- runs: (\w+) -->\n)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUNS = {"": True, "kernels": not REFERENCE, "compiled": REFERENCE or ON_GPU, "gpu": ON_GPU}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(page):
    """The page's Python that can run here."""
    return [code for where, code in BLOCK.findall(page.read_text()) if RUNS[where]]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a page as one program, with a store of its own; what it registers is forgotten."""
    if not ON_GPU:  # Triton's own tuner times with a driver
        monkeypatch.setattr("triton.runtime.autotuner.Autotuner.do_bench", staticmethod(lambda call, quantiles: (call(), [1.0] * 3)[1]))
    monkeypatch.setattr(tri_reduce.monoids, "REGISTERED", {})
    monkeypatch.setattr(registry, "REGISTERED", tri_reduce.monoids.REGISTERED)
    known = dict(tri_reduce.MONOIDS)
    plans.PLANS.clear()

    def program(page):
        script = tmp_path / "page.py"
        script.write_text("\n".join(blocks(page)))
        return runpy.run_path(str(script))

    yield program
    tri_reduce.MONOIDS.clear()
    tri_reduce.MONOIDS.update(known)
    plans.PLANS.clear()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_the_examples_of_a_page_run(page, run):
    run(page)


@pytest.mark.skipif(REFERENCE, reason="about kernels: without them nothing is tuned")
def test_the_page_about_tuning_says_what_its_examples_do(run, capsys):
    before = autotune.stats()
    kernel = run(ROOT / "docs" / "tuning.md")["row_sum_kernel"]
    assert len(kernel.configs) > 1 and len(kernel.cache) == 1
    assert {name: n - before[name] for name, n in autotune.stats().items()} == {"hits": 1, "misses": 1, "tuned": 1}
    assert "call/sum/fp32x1/rows4/3@512/512@1 {" in capsys.readouterr().out


def test_a_page_that_says_nothing_of_where_it_runs_runs_everywhere():
    assert {where for page in PAGES for where, _ in BLOCK.findall(page.read_text())} <= RUNS.keys()


def prose(page):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name}: {target}"
        assert not anchor or linked.suffix == ".py" or anchor in anchors(linked), f"{page.name}: {target}"


def commands(page):
    """Lines of shell that a page prints."""
    text = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@every_page
def test_commands_are_such_as_there_are(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page):
        words = [w for w in words if not re.match(r"[A-Z_]+=", w)]
        if words[:3] == ["python", "-m", "tri_reduce"]:
            cli.parser().parse_args(["explain" if w == "NAME" else w for w in words[3:]])
        elif words[0] == "python" and words[1].endswith(".py"):
            assert (ROOT / words[1]).is_file() or words[1] == "serve.py", words
        elif words[0] == "make":
            assert words[1] in targets, words


def test_the_page_about_the_command_line_shows_what_explain_prints(capsys):
    shown = re.search(r"^```text\n(.*?)\n  \.\.\.\n```$", (ROOT / "docs" / "command_line.md").read_text(), re.DOTALL | re.MULTILINE)
    assert cli.main(["explain", "64x401408", "--dim", "1", "--dtype", "fp32", "--device", "h200"]) == 0
    assert capsys.readouterr().out.startswith(shown[1] + "\n")


def test_the_walk_through_a_call_names_functions_that_are_where_it_says():
    found = re.findall(r"\[`([\w.]+)`\]\(\.\./(tri_reduce/[\w/]+)\.py#L\d+\)", (ROOT / "docs" / "design.md").read_text())
    assert len(found) > 20
    for name, file in found:
        module = importlib.import_module(file.replace("/", "."))
        path = name.removeprefix(file.removeprefix("tri_reduce/").replace("/", ".") + ".")
        assert path != name, f"{name} is not in {file}.py"
        thing = functools.reduce(getattr, path.split("."), module)
        thing = getattr(thing, "fn", thing)
        assert getattr(thing, "__module__", module.__name__) == module.__name__, f"{name} is only imported by {file}.py"


def test_the_walk_through_a_call_leads_to_lines():
    text = (ROOT / "docs" / "design.md").read_text()
    updated = runpy.run_path(str(ROOT / "docs" / "lines.py"))["updated"]
    assert updated(text) == text, "python docs/lines.py puts the lines of today"


def test_the_table_of_modules_names_every_module_and_no_other():
    text = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`(\w+)\.py`", text))
    there = {p.stem for p in (ROOT / "tri_reduce").glob("*.py")}
    assert named <= there | {"language", "functions", "reduce", "gemv"}


def test_every_public_name_has_a_docstring_and_is_in_the_reference():
    text = (ROOT / "docs" / "api.md").read_text()
    errors = {e.__name__ for e in tri_reduce.errors.ALL}
    for name in tri_reduce.__all__:
        thing = getattr(tri_reduce, name)
        if name in errors:
            assert "automodule:: tri_reduce.errors" in text
        elif name != "MONOIDS":
            assert re.search(rf"\b{name}\b", text), f"docs/api.md lacks {name}"
        assert inspect.getdoc(thing), name


def pattern(node):
    """The constant parts of a string, adjacent literals joined; `…` where values go."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def test_every_message_of_the_page_about_trouble_is_one_of_the_librarys():
    nodes = [n for file in (ROOT / "tri_reduce").rglob("*.py") for n in ast.walk(ast.parse(file.read_text()))]
    said = {" ".join(text.split()) for n in nodes if (text := pattern(n))}
    said |= {re.sub("…+", "…", text) for text in said}
    rows = re.findall(r"^\| (`.*?`) \| (?:\w+|exit status 2) \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    messages = [m for row in rows for m in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 60
    assert [m for m in messages if m not in said] == []


def test_every_error_class_is_in_the_table_of_the_reducer():
    text = (ROOT / "docs" / "reducer.md").read_text()
    assert all(f"`{error.__name__}`" in text for error in tri_reduce.errors.ALL)


def test_the_figure_of_the_readme_is_that_of_the_table():
    """Both panels of docs/drawings/h200.svg say how many problems they show: as many as docs/performance.md has."""
    rows = re.findall(
        r"^\| (\w+) \[[\d, ]+\].*? (?:bf16|fp32) (?:\| [\d.]+ ){6}\|$", (ROOT / "docs" / "performance.md").read_text(), re.MULTILINE
    )
    svg = (ROOT / "docs" / "drawings" / "h200.svg").read_text()
    gemvs = sum(op == "gemv" for op in rows)
    assert f"reductions ({len(rows) - gemvs} problems)" in svg and f"gemv ({gemvs} problems)" in svg
