"""What tasks tell each other and the caller, as keys of the job's store: `chief:0/start`, `chief:0/stop`, …

`client` is whatever has a mapping `kv` with a `wait`; a task is `"type:id"`, a ContainerKey or a ContainerTask.
"""

import time
import traceback
from typing import Any, Optional, Union

from .topologies import ContainerKey, ContainerTask

TRACEBACK_CHARACTERS_MAX = 100_000

Task = Union[str, ContainerKey, ContainerTask]


def task_name(task: Task) -> str:
    """The task as it stands in keys: `type:id`."""
    if isinstance(task, str):
        return task
    if isinstance(task, ContainerTask):
        task = task.to_container_key()
    return task.to_kv_str()


def wait(client: Any, key: str) -> str:
    """The text of a key, once somebody has written it."""
    return client.kv.wait(key).decode()


def broadcast(client: Any, key: str, value: Union[str, bytes] = "") -> None:
    """Writes a text, or bytes, to a key, for all to see."""
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
    """The traceback as a text; nothing where nothing was raised."""
    if e is None:
        return ""
    text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
    # A value of the store has a mebibyte at most, and the end of a traceback says what happened.
    return text[-TRACEBACK_CHARACTERS_MAX:]
