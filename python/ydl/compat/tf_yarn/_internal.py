"""Small things that tasks need."""

import os
import socket
from contextlib import contextmanager
from threading import Thread
from typing import Any, Iterable, Iterator, List, Optional, Tuple

from .topologies import ContainerTask


class MonitoredThread(Thread):
    """A thread that keeps the exception it ended with."""

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
        except BaseException as failure:  # a SystemExit is an end, too, and its code counts
            self._exception = failure


@contextmanager
def reserve_sock_addr() -> Iterator[Tuple[str, int]]:
    """A free port of this node that nobody else gets while it is held; whoever shares it says SO_REUSEPORT."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
        yield own_address(), held.getsockname()[1]


def own_address() -> str:
    """An address at which other nodes reach this one: what the others are told of this task, or what the node thinks itself."""
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
    """Every task of (type, instances, processes) in order."""
    for kind, instances, processes in tasks:
        for number in range(instances):
            yield ContainerTask(kind, number, processes)


def xset_environ(**variables: str) -> None:
    """Sets variables that nobody has set yet; RuntimeError for one that is."""
    for name, value in variables.items():
        if name in os.environ:
            raise RuntimeError("`{}` is set already, to `{}`".format(name, os.environ[name]))
        os.environ[name] = value
