"""A run in a notebook: a table that moves."""

from __future__ import annotations

import html as markup
import importlib
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, List

from .errors import Error

if TYPE_CHECKING:
    from .run import Run, Status

#: Between two pictures.
_PACE_S = 2.0
#: A notebook that was left open stops asking after so long.
_SHOWN_MAX_S = 24 * 3600.0
#: Rows of a table; more say nothing.
_ROWS_MAX = 64
_COLOURS = {"succeeded": "#1a7f37", "failed": "#cf222e", "lost": "#cf222e", "killed": "#9a6700"}


def html(status: "Status") -> str:
    """The job as a table."""
    names = _names(status)
    head = ["task", "state", "attempt", "node", *names]
    rows = []
    for task in status.tasks[:_ROWS_MAX]:
        values = [_metric(task.metrics, name) for name in names]
        cells = [task.task, task.state, str(task.attempt), task.node or "", *values]
        rows.append("<tr>" + "".join(f"<td>{_painted(cell)}</td>" for cell in cells) + "</tr>")
    if len(status.tasks) > _ROWS_MAX:
        rows.append(f"<tr><td colspan={len(head)}>… and {len(status.tasks) - _ROWS_MAX} more</td></tr>")
    title = f"<b>{markup.escape(status.id)}</b> {_painted(status.state)} — {markup.escape(status.why)}"
    columns = "".join(f"<th>{markup.escape(name)}</th>" for name in head)
    return f"<div>{title}<table><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _names(status: "Status") -> List[str]:
    names: Dict[str, None] = {}
    for task in status.tasks:
        names.update(dict.fromkeys(task.metrics))
    return list(names)[:8]


def _metric(metrics: Any, name: str) -> str:
    metric = metrics.get(name)
    if metric is None:
        return ""
    return f"{metric.value:.6g}" if metric.step is None else f"{metric.value:.6g} @ {metric.step}"


def _painted(text: str) -> str:
    colour = _COLOURS.get(text)
    text = markup.escape(text)
    return text if colour is None else f'<span style="color:{colour}">{text}</span>'


def show(run: "Run") -> None:
    """Shows a run; where the notebook can, the table is kept up to date until the job is over."""
    try:
        shell: Any = importlib.import_module("IPython.display")
        asked: Any = importlib.import_module("IPython").get_ipython()
    except ImportError:
        asked = None
    # In a terminal there are no tables.
    if getattr(asked, "kernel", None) is None:
        print(repr(run))
        return
    status = run.status()
    handle = shell.display(shell.HTML(html(status)), display_id=True)
    if handle is None or status.over:
        return

    def keep() -> None:
        end = time.monotonic() + _SHOWN_MAX_S
        shown = status
        while not shown.over and time.monotonic() < end:
            time.sleep(_PACE_S)
            try:
                shown = run.status()
                handle.update(shell.HTML(html(shown)))
            except Error:
                # It is looked at again; the table says what was last seen.
                continue

    threading.Thread(target=keep, name="ydl-notebook", daemon=True).start()
