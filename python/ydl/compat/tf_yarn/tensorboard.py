"""TensorBoard as a task, which reports its address."""

import logging
import os
import shlex
import time
import urllib.request
from typing import Any, Iterable, Optional

from . import event

logger = logging.getLogger(__name__)

DEFAULT_TERMINATION_TIMEOUT_SECONDS = 30
TIMEOUT_SECONDS = 120
URL_EVENT_LABEL = "Tensorboard listening on"


def get_termination_timeout() -> int:
    """Returns the time in seconds for which TensorBoard continues after the other tasks."""
    value = os.environ.get("TB_TERMINATION_TIMEOUT_SECONDS")
    seconds = int(value) if value else -1
    return seconds if seconds >= 0 else DEFAULT_TERMINATION_TIMEOUT_SECONDS


def url_event_name(tasks: Iterable[event.Task]) -> Optional[str]:
    """Returns the key of TensorBoard's address, if exactly one of the tasks is TensorBoard."""
    names = [name for name in map(event.task_name, tasks) if name.split(":")[0] == "tensorboard"]
    return names[0] + "/url" if len(names) == 1 else None


def start_tf_board(client: Any, model_dir: str) -> None:
    """Starts TensorBoard in this process and reports its address."""
    os.environ["GCS_READ_CACHE_DISABLED"] = "1"
    from tensorboard import default, program

    from ._task_commons import get_task_key

    host, port = own_endpoint()
    arguments = ["tensorboard", "--logdir", model_dir, "--host", host, "--port", str(port)]
    arguments += shlex.split(os.environ.get("TB_EXTRA_ARGS", ""))
    board = program.TensorBoard(default.get_plugins())
    board.configure(arguments)
    board.launch()
    url = "http://{}:{}".format(host, port)
    wait_until_ready(url)
    logger.info("TensorBoard shows %s at %s", model_dir, url)
    event.url_event(client, get_task_key(), url)


def wait_until_ready(url: str) -> None:
    """Waits until an address responds."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            # Without a proxy, since it is this process.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as response:
                response.read()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def own_endpoint() -> Any:
    """Returns address and port of this task."""
    from ._internal import own_address, reserve_sock_addr
    from ._task_commons import get_task_key, roles

    key = get_task_key()
    for role in roles():
        if role["role"] == key.type and role.get("endpoints"):
            endpoint = role["endpoints"][key.id]
            if "http" in endpoint["ports"]:
                return endpoint["host"], endpoint["ports"]["http"]
    with reserve_sock_addr() as (_, port):
        return own_address(), port
