"""Distributed deep learning on YARN and on one machine: jobs from Python.

Outside of tasks: :class:`Job`, :class:`Role`, :class:`Run`. Inside of them: :func:`task`, :data:`kv`, :data:`event`,
:func:`report`. `docs/reference/python.md` is the guide.
"""

from .errors import Conflict, Error, JobFailed, JobKilled, KeyMissing, NotInTask, Unreachable, WaitTimeout
from .job import Job, Role
from .metrics import report, report_flush
from .program import binary
from .program import call as binary_call
from .run import Line, Metric, Outcome, Run, Status, TaskStatus, runs
from .store import Change, Entry, Event, KeyValue, TaskEvents, TaskStore
from .tasks import Cluster, ClusterRole, Endpoint, Task, in_task, task

__version__ = "0.1.0"

#: The key-value store of the job whose task this process is.
kv = TaskStore()
#: Its events.
event = TaskEvents(kv)

__all__ = [
    "Change",
    "Cluster",
    "ClusterRole",
    "Conflict",
    "Endpoint",
    "Entry",
    "Error",
    "Event",
    "Job",
    "JobFailed",
    "JobKilled",
    "KeyMissing",
    "KeyValue",
    "Line",
    "Metric",
    "NotInTask",
    "Outcome",
    "Role",
    "Run",
    "Status",
    "Task",
    "TaskStatus",
    "TaskStore",
    "Unreachable",
    "WaitTimeout",
    "binary",
    "binary_call",
    "event",
    "in_task",
    "kv",
    "report",
    "report_flush",
    "runs",
    "task",
]
