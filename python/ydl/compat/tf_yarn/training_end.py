"""End of the training, for which an evaluator waits."""

import logging
import time
from typing import Any, List, Optional

from ._task_commons import cluster_instances
from .application import Application
from .lifecycle import end_key

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Maximum delay of a look by an unreachable store."""
TRAINING_TYPES = ("chief", "worker")


def training_tasks() -> List[str]:
    """Returns the names of the tasks that train."""
    rows = [(kind, number) for kind, instances, _ in cluster_instances() for number in range(instances)]
    return ["{}:{}".format(kind, number) for kind, number in rows if kind in TRAINING_TYPES]


class TrainingEnd:
    """Watches the ends of the tasks that train. Without such tasks the training never ends."""

    def __init__(self, client: Any = None, tasks: Optional[List[str]] = None) -> None:
        self.client = client or Application.from_current(RETRY_SECONDS)
        self.tasks = training_tasks() if tasks is None else tasks
        self.running = list(self.tasks)

    def has_ended(self) -> bool:
        """Returns True if all of them have ended. An unreachable store means no."""
        return self._look(0.0)

    def wait(self, seconds: float) -> bool:
        """Waits until all of them have ended, for at most `seconds`."""
        end = time.monotonic() + seconds
        if self._look(seconds):
            return True
        # A failed call returns at once.
        time.sleep(max(0.0, end - time.monotonic()))
        return False

    def _look(self, seconds: float) -> bool:
        from ydl import Error

        end = time.monotonic() + seconds
        while self.running:
            try:
                self.client.kv.wait(end_key(self.running[0]), max(0.0, end - time.monotonic()))
            except Error as error:
                logger.debug("%s has not ended: %s", self.running[0], error.message)
                return False
            del self.running[0]
        return bool(self.tasks)
