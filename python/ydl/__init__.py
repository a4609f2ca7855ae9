"""Distributed deep learning on YARN and on one machine: jobs from Python.

Outside of tasks: :class:`Job`, :class:`Role`, :class:`Run`. Inside of tasks: :func:`task`, :data:`kv`, :data:`event`,
:func:`report`. `docs/reference/python.md` is the guide.
"""

from .errors import Conflict, Error, JobFailed, JobKilled, KeyMissing, NotInTask, Unreachable, WaitTimeout
from .job import Job, Role
from .metrics import report, report_flush
from .program import binary
from .program import call as run_binary
from .run import LogLine, Metric, Outcome, Run, Status, TaskStatus, runs
from .store import Change, Entry, Event, KeyValue, TaskEvents, TaskStore
from .tasks import Cluster, ClusterRole, Endpoint, Task, in_task, task

__version__ = "0.1.0"

#: Key-value store of this task's job.
kv = TaskStore()
#: Events of this task's job.
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
    "LogLine",
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
    "event",
    "in_task",
    "kv",
    "report",
    "report_flush",
    "run_binary",
    "runs",
    "task",
]
