"""Links of a page to functions lead to their lines: `python docs/lines.py` (part of `make format`) puts the numbers of today.

A link is written [`module.name`](../tri_reduce/module.py#L1), or module.Class.name.
"""

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parent / "design.md"
LINK = re.compile(r"\[`([\w.]+)`\]\((\.\./tri_reduce/([\w/]+)\.py)(?:#L\d+)?\)")


def line_of(name: str, source: str) -> int:
    """The line where a function, a class or a constant of a module is defined. LookupError: nowhere."""
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        node = next((n for n in body if part in _names(n)), None)
        if node is None:
            raise LookupError(name)
        body = getattr(node, "body", [])
    return node.lineno


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [t.id for t in targets if isinstance(t, ast.Name)]


def updated(text: str) -> str:
    """The page with today's lines."""

    def link(found: re.Match[str]) -> str:
        name, path, module = found.groups()
        inside = name.removeprefix(module.replace("/", ".") + ".")
        return f"[`{name}`]({path}#L{line_of(inside, (PAGE.parent / path).read_text())})"

    return LINK.sub(link, text)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
