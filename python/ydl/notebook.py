"""Table of a run in a notebook, updated until the job ends."""

from __future__ import annotations

import html as markup
import importlib
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, List

from .errors import Error

if TYPE_CHECKING:
    from .run import Run, Status

#: Interval between updates.
_UPDATE_INTERVAL_S = 2.0
#: Updates end after this time, in case the notebook was left open.
_MAX_UPDATE_S = 24 * 3600.0
#: Maximum number of rows.
_MAX_ROWS = 64
_COLORS = {"succeeded": "#1a7f37", "failed": "#cf222e", "lost": "#cf222e", "killed": "#9a6700"}


def html(status: "Status") -> str:
    """Formats the job as a table."""
    names = _names(status)
    head = ["task", "state", "attempt", "node", *names]
    rows = []
    for task in status.tasks[:_MAX_ROWS]:
        values = [_metric(task.metrics, name) for name in names]
        cells = [task.task, task.state, str(task.attempt), task.node or "", *values]
        rows.append("<tr>" + "".join(f"<td>{_colored(cell)}</td>" for cell in cells) + "</tr>")
    if len(status.tasks) > _MAX_ROWS:
        rows.append(f"<tr><td colspan={len(head)}>… and {len(status.tasks) - _MAX_ROWS} more</td></tr>")
    title = f"<b>{markup.escape(status.id)}</b> {_colored(status.state)} — {markup.escape(status.reason)}"
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


def _colored(text: str) -> str:
    color = _COLORS.get(text)
    text = markup.escape(text)
    return text if color is None else f'<span style="color:{color}">{text}</span>'


def show(run: "Run") -> None:
    """Shows a run, in a notebook as a table that is updated until the job ends."""
    try:
        display: Any = importlib.import_module("IPython.display")
        ipython: Any = importlib.import_module("IPython").get_ipython()
    except ImportError:
        ipython = None
    # A terminal shows no HTML.
    if getattr(ipython, "kernel", None) is None:
        print(repr(run))
        return
    status = run.status()
    handle = display.display(display.HTML(html(status)), display_id=True)
    if handle is None or status.done:
        return

    def update() -> None:
        end = time.monotonic() + _MAX_UPDATE_S
        current = status
        while not current.done and time.monotonic() < end:
            time.sleep(_UPDATE_INTERVAL_S)
            try:
                current = run.status()
                handle.update(display.HTML(html(current)))
            except Error:
                # Keep the last table and retry.
                continue

    threading.Thread(target=update, name="ydl-notebook", daemon=True).start()
