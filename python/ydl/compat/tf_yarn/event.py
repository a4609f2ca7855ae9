"""Reports of tasks as keys of the job's store: `chief:0/start`, `chief:0/stop`, …

`client` is any object with a mapping `kv` that has a `wait`; a task is `"type:id"`, a ContainerKey or a ContainerTask.
"""

import time
import traceback
from typing import Any, Optional, Union

from .topologies import ContainerKey, ContainerTask

MAX_TRACEBACK_CHARACTERS = 100_000

Task = Union[str, ContainerKey, ContainerTask]


def task_name(task: Task) -> str:
    """Returns the name of a task in keys: `type:id`."""
    if isinstance(task, str):
        return task
    if isinstance(task, ContainerTask):
        task = task.to_container_key()
    return task.to_kv_str()


def wait(client: Any, key: str) -> str:
    """Waits for a key and returns its text."""
    return client.kv.wait(key).decode()


def broadcast(client: Any, key: str, value: Union[str, bytes] = "") -> None:
    """Writes a text, or bytes, to a key."""
    client.kv[key] = value.encode() if isinstance(value, str) else value


def init_event(client: Any, task: Task, sock_addr: str) -> None:
    broadcast(client, task_name(task) + "/init", sock_addr)


def start_event(client: Any, task: Task) -> None:
    broadcast(client, task_name(task) + "/start")


def stop_event(client: Any, task: Task, e: Optional[BaseException] = None) -> None:
    broadcast(client, task_name(task) + "/stop", maybe_format_exception(e))


def logs_event(client: Any, task: Task, logs: str) -> None:
    broadcast(client, task_name(task) + "/logs", logs)


def url_event(client: Any, task: Task, url: str) -> None:
    broadcast(client, task_name(task) + "/url", url)


def _now() -> str:
    return str(time.time())


def broadcast_train_eval_start_timer(client: Any, task: Task) -> None:
    broadcast(client, task_name(task) + "/train_eval_start_time", _now())


def broadcast_train_eval_stop_timer(client: Any, task: Task) -> None:
    broadcast(client, task_name(task) + "/train_eval_stop_time", _now())


def broadcast_container_start_time(client: Any, task: Task) -> None:
    broadcast(client, task_name(task) + "/container_start_time", _now())


def broadcast_container_stop_time(client: Any, task: Task) -> None:
    broadcast(client, task_name(task) + "/container_stop_time", _now())


def maybe_format_exception(e: Optional[BaseException]) -> str:
    """Formats a traceback; empty without an exception."""
    if e is None:
        return ""
    text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    # Values are limited to 1 MiB, and the end of a traceback is the important part.
    return text[-MAX_TRACEBACK_CHARACTERS:]
