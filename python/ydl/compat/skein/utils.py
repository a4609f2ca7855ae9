"""Module `skein.utils`: functions of skein that libraries on top of it use, such as dask-yarn."""

import datetime
from typing import Any, Callable, Iterable, Sequence


class cached_property:
    """Attribute that is computed when it is first read."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.__doc__ = func.__doc__
        self.func = func

    def __get__(self, obj: Any, cls: Any) -> Any:
        if obj is None:
            return self
        value = obj.__dict__[self.func.__name__] = self.func(obj)
        return value


def format_table(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table as text, with its columns' names in capitals."""
    texts = [[str(name).upper() for name in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    lines = ("    ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in texts)
    return "\n".join(line.strip() for line in lines)


def humanize_timedelta(td: datetime.timedelta) -> str:
    """Returns a duration as text: `2h 5m`, `5m` or `30s`."""
    seconds = int(td.total_seconds())
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return "{}h {}m".format(hours, minutes)
    return "{}m".format(minutes) if minutes else "{}s".format(seconds)
