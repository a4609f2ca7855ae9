"""Helper functions of tasks."""

import os
import socket
from contextlib import contextmanager
from threading import Thread
from typing import Any, Iterable, Iterator, List, Optional, Tuple

from .topologies import ContainerTask


class MonitoredThread(Thread):
    """Thread that stores its exception."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exception: Optional[BaseException] = None

    @property
    def state(self) -> str:
        if not self.is_alive():
            return "SUCCEEDED" if self._exception is None else "FAILED"
        return "RUNNING"

    @property
    def exception(self) -> Optional[BaseException]:
        return self._exception

    def run(self) -> None:
        try:
            super().run()
        except BaseException as failure:  # includes SystemExit, whose code matters
            self._exception = failure


@contextmanager
def reserve_sock_addr() -> Iterator[Tuple[str, int]]:
    """Reserves a free port of this node. It can be shared with SO_REUSEPORT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("", 0))
        yield own_address(), sock.getsockname()[1]


def own_address() -> str:
    """Returns an address at which other nodes reach this one: that of this task in the cluster, or that of the host name."""
    try:
        import ydl

        me = ydl.task()
        for endpoint in me.cluster[me.role].endpoints if me.role in me.cluster else ():
            if endpoint.index == me.index and endpoint.host:
                return endpoint.host
    except ydl.Error:
        pass
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def iter_tasks(tasks: List[Tuple[str, int, int]]) -> Iterable[ContainerTask]:
    """Yields the tasks of (type, instances, processes) in order."""
    for kind, instances, processes in tasks:
        for number in range(instances):
            yield ContainerTask(kind, number, processes)


def xset_environ(**variables: str) -> None:
    """Sets variables. Raises RuntimeError if one is set already."""
    for name, value in variables.items():
        if name in os.environ:
            raise RuntimeError("`{}` is set already, to `{}`".format(name, os.environ[name]))
        os.environ[name] = value
