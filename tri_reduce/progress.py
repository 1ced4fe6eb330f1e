"""Progress of a long command: a bar in a terminal (with the extra `cli`: rich), else a numbered line for each step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO


@contextlib.contextmanager
def steps(total: int, title: str, out: TextIO) -> Iterator[Callable[[str], None]]:
    """A call for each of `total` steps, when it is done, with the line that says what came of it.

    Example:
        >>> import sys
        >>> with steps(2, "tuning", sys.stdout) as done:
        ...     done("sum"), done("max")
        [1/2] sum
        [2/2] max
        (None, None)
    """
    if out.isatty() and (bar := _bar(out)) is not None:
        with bar:
            task = bar.add_task(title, total=total)

            def advance(line: str) -> None:
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
                bar.advance(task)

            yield advance
        return
    lines = 0

    def number(line: str) -> None:
        nonlocal lines
        lines += 1
        print(f"[{lines}/{total}] {line}", file=out, flush=True)

    yield number


def _bar(out: TextIO):  # type: ignore[no-untyped-def]
    """rich's progress bar; None without rich."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    except ImportError:
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(file=out))
