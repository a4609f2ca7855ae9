"""Module `skein.core`: `skein.Client`, which runs the commands of ydl instead of a driver."""

import contextlib
import datetime
import json
import os
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence

from ... import program
from ...errors import Error
from .application import ENDED, ApplicationClient
from .exceptions import ApplicationNotRunningError, DriverError, translated_command, unsupported
from .model import (
    ApplicationLogs,
    ApplicationReport,
    ApplicationSpec,
    ApplicationState,
    EnvironmentFile,
    FinalStatus,
    NodeReport,
    NodeState,
    Queue,
    QueueState,
    ResourceUsageReport,
    Resources,
)
from .properties import Properties, properties
from .reports import no_resources, time_of

#: Interval of questions for the state of an application that starts.
_POLL_S = 0.3
_BAD_INPUT = 2
#: States of applications on this machine, by the state of the job.
_STATES = {"succeeded": "FINISHED", "failed": "FINISHED", "lost": "FAILED", "killed": "KILLED", "accepted": "ACCEPTED"}
_FINAL = {"succeeded": "SUCCEEDED", "failed": "FAILED", "lost": "FAILED", "killed": "KILLED"}
#: Formats of times, the last two of today.
_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%H:%M", "%H:%M:%S")


class Client:
    """Submits applications and finds them. Arguments about the driver are accepted: there is none."""

    def __init__(
        self,
        address: Any = None,
        security: Any = None,
        keytab: Optional[str] = None,
        principal: Optional[str] = None,
        log: Any = None,
        log_level: Any = None,
        java_options: Any = None,
    ) -> None:
        if keytab is not None and principal is None:
            raise ValueError("Principal must be specified for keytab login")
        if keytab is None and principal is not None:
            raise ValueError("Keytab must be specified for keytab login")
        if keytab is not None and not os.path.exists(keytab):
            raise FileNotFoundError("keytab doesn't exist at {!r}".format(os.path.abspath(keytab)))
        self.address, self.security, self._keytab, self._principal = address, security, keytab, principal

    @classmethod
    def from_global_driver(cls) -> "Client":
        """Returns a client: there is no driver."""
        return cls()

    @staticmethod
    def start_global_driver(**_options: Any) -> str:
        """Does nothing: there is no driver."""
        return ""

    @staticmethod
    def stop_global_driver(force: bool = False) -> None:
        """Does nothing: there is no driver."""

    def __reduce__(self) -> Any:
        return Client, (self.address, self.security, self._keytab, self._principal)

    def __repr__(self) -> str:
        return "Client<ydl>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing: there is no driver."""

    def submit(self, spec: Any) -> str:
        """Submits an application, given as specification, dictionary or path, and returns its id."""
        with contextlib.ExitStack() as files:
            if isinstance(spec, str):
                if not os.path.exists(spec):
                    raise FileNotFoundError("[Errno 2] No such file or directory: {!r}".format(spec))
                return self._submit(spec)
            whole = ApplicationSpec._from_any(spec)
            file = files.enter_context(tempfile.NamedTemporaryFile("w", suffix=".json"))
            json.dump(_minimal(whole), file)
            file.flush()
            return self._submit(file.name, whole.user, _environment(whole))

    def _submit(self, path: str, user: str = "", environment: Optional[str] = None) -> str:
        arguments = ["submit", "--detach"]
        if environment is not None:
            arguments += ["--set", "environment=" + json.dumps(environment)]
        if self._keytab is not None:
            arguments += ["--set", "keytab.path=" + os.path.abspath(self._keytab), "--set", "keytab.principal=" + str(self._principal)]
        arguments.append(path)
        env = None
        try:
            if user:
                with translated_command():
                    program.call(["submit", "--show", path])
        except DriverError as error:
            # Another user than the submitter is impersonated, as the cluster allows.
            if "`user`: the job would" not in str(error):
                raise
            env = {"HADOOP_PROXY_USER": user}
        with translated_command():
            return str(program.call_one(arguments, env=env)["job"]["id"])

    def submit_and_connect(self, spec: Any) -> ApplicationClient:
        """Submits an application and connects to it. If that fails, the application is killed."""
        app_id = self.submit(spec)
        try:
            return self.connect(app_id)
        except BaseException:
            self.kill_application(app_id)
            raise

    def connect(self, app_id: str, wait: bool = True, security: Any = None) -> ApplicationClient:
        """Connects to a running application; by default waits until it runs."""
        while True:
            status = _status(app_id)
            state = str(status.get("state"))
            if state in ENDED:
                break
            if status.get("view") is not None:
                address = (status.get("application") or {}).get("host")
                return ApplicationClient(address, app_id, security)
            if not wait:
                break
            time.sleep(_POLL_S)
        text = "{} is not running. Application state: {}".format(app_id, _state(status))
        raise ApplicationNotRunningError(text)

    def get_applications(
        self,
        states: Any = None,
        name: Optional[str] = None,
        user: Optional[str] = None,
        queue: Optional[str] = None,
        started_begin: Any = None,
        started_end: Any = None,
        finished_begin: Any = None,
        finished_end: Any = None,
    ) -> List[ApplicationReport]:
        """Returns reports about the caller's applications, by default those that run or wait."""
        chosen = ("SUBMITTED", "ACCEPTED", "RUNNING") if states is None else states
        chosen = {ApplicationState(state) for state in chosen}
        bounds = [
            (field, _time(begin, field + "_begin"), _time(end, field + "_end"))
            for field, begin, end in (("started", started_begin, started_end), ("finished", finished_begin, finished_end))
        ]
        with translated_command():
            reports = [_report(row) for row in program.call(["ls", "--all"])]

        def matches(report: Any) -> bool:
            for field, begin, end in bounds:
                at = report.start_time if field == "started" else report.finish_time
                if (begin is not None and (at is None or at < begin)) or (end is not None and (at is None or at > end)):
                    return False
            texts = ((name, report.name), (user, report.user), (queue, report.queue))
            return report.state in chosen and all(wanted is None or wanted == value for wanted, value in texts)

        return sorted(filter(matches, reports), key=lambda report: report.id)

    def application_report(self, app_id: str) -> ApplicationReport:
        """Returns a report about an application."""
        return _report(_status(app_id))

    def application_logs(self, app_id: str, user: str = "") -> ApplicationLogs:
        """Returns the logs of all containers, also while the application runs."""
        logs: Dict[str, List[str]] = {}
        with translated_command():
            for record in program.call(["logs", app_id], env={"HADOOP_PROXY_USER": user} if user else None):
                line = record.get("output")
                if line is not None:
                    logs.setdefault("{0}_{2}".format(*line["task"].rpartition(":")), []).append(line["line"])
        return ApplicationLogs(app_id, {container: "\n".join(lines) for container, lines in logs.items()})

    def kill_application(self, app_id: str, user: str = "") -> None:
        """Kills an application."""
        with translated_command():
            program.call(["kill", app_id], env={"HADOOP_PROXY_USER": user} if user else None)

    def move_application(self, app_id: str, queue: str) -> None:
        """Rejected: Hadoop's own command moves applications."""
        command = "yarn application -appId {} -changeQueue {}".format(app_id, queue)
        raise unsupported("Client.move_application", "use `{}`".format(command))

    def get_nodes(self, states: Optional[Sequence[Any]] = None) -> List[NodeReport]:
        """Returns reports about the nodes of the cluster."""
        chosen = None if states is None else {NodeState(state) for state in states}
        with translated_command():
            reports = [_node(row) for row in program.call(["nodes", "--all"])]
        return sorted((it for it in reports if chosen is None or it.state in chosen), key=lambda it: it.id)  # type: ignore[attr-defined]

    def get_all_queues(self) -> List[Queue]:
        """Returns the queues of the cluster."""
        return [queue for _, queue in self._queues()]

    def get_queue(self, name: str) -> Queue:
        """Returns a queue, given by its name or path."""
        for path, queue in self._queues():
            if name in (path, queue.name):
                return queue
        raise ValueError("Queue '{}' does not exist".format(name))

    def get_child_queues(self, name: str) -> List[Queue]:
        """Returns the queues directly below a queue."""
        queues = self._queues()
        parents = {path for path, queue in queues if name in (path, queue.name)} or ({"root"} if name == "root" else set())
        if not parents:
            raise ValueError("Queue '{}' does not exist".format(name))
        return [queue for path, queue in queues if path.rpartition(".")[0] in parents]

    def _queues(self) -> Any:
        with translated_command():
            return [(str(row["queue"]), _queue(row)) for row in program.call(["queues"])]


def _environment(spec: ApplicationSpec) -> Optional[str]:
    """Returns the path of the environment of all containers, if a file names one."""
    files = [file for part in (spec.master, *spec.services.values()) for file in part.files.values()]
    paths = sorted({file.path for file in files if isinstance(file, EnvironmentFile)})
    if len(paths) > 1:
        raise ValueError("an application has one environment, but its files name `{}` and `{}`".format(*paths[:2]))
    return paths[0] if paths else None


def _minimal(spec: ApplicationSpec) -> Dict[str, Any]:
    """Returns a specification without the keys that have their default."""
    whole = spec.to_dict()
    if not spec.acls.enable:
        del whole["acls"]
    master = whole["master"]
    if str(master["log_level"]) == "INFO":
        del master["log_level"]
    pairs = [(spec.master, master), *((spec.services[name], part) for name, part in whole["services"].items())]
    for part, written in pairs:
        for name in [name for name, file in part.files.items() if isinstance(file, EnvironmentFile)]:
            del written["files"][name]
    parts = [whole, master, *whole["services"].values()]
    for part in parts:
        for file in part.get("files", {}).values():
            for key, default in (("visibility", "APPLICATION"), ("size", 0), ("timestamp", 0)):
                if file[key] == default:
                    del file[key]
        for key in ("gpus", "fpgas"):
            if part.get("resources", {}).get(key) == 0:
                del part["resources"][key]
        for key in [key for key, value in part.items() if value in ("", [], {}) or value is False]:
            del part[key]
    return whole


def _status(app_id: str) -> Dict[str, Any]:
    try:
        with translated_command():
            return program.call_one(["status", app_id], accepted_codes=(0, program.UNREACHABLE))
    except DriverError as error:
        if isinstance(error.__context__, Error) and error.__context__.exit_code == _BAD_INPUT:
            raise ValueError(str(error)) from None
        raise


def _state(row: Dict[str, Any]) -> str:
    """Returns the state of an application from a row of `ls` or from `status`."""
    application = row.get("application") or {}
    if application.get("state"):
        return str(ApplicationState(application["state"].replace("-", "_")))
    state = str(row.get("state"))
    return _STATES.get(state, "RUNNING")


def _report(row: Dict[str, Any]) -> ApplicationReport:
    application = row.get("application") or {}
    view = row.get("view") or {}
    final = application.get("final_status") or _FINAL.get(str(row.get("state")), "UNDEFINED")
    usage = ResourceUsageReport(
        memory_seconds=int(application.get("memory_mib_seconds") or 0),
        vcore_seconds=int(application.get("vcore_seconds") or 0),
        num_used_containers=max(0, int(application.get("containers") or len(view.get("tasks") or []))),
        needed_resources=no_resources(),
        reserved_resources=no_resources(),
        used_resources=no_resources(),
    )
    ended = str(row.get("state")) in ENDED
    return ApplicationReport(
        id=str(row["id"]),
        name=str(application.get("name") or view.get("name") or row.get("name") or ""),
        user=str(application.get("user") or os.environ.get("USER") or ""),
        queue=str(application.get("queue") or row.get("queue") or ""),
        tags=set(application.get("tags") or []),
        host=str(application.get("host") or ""),
        port=int(application.get("port") or 0),
        tracking_url=str(application.get("tracking_url") or ""),
        state=ApplicationState(_state(row)),
        final_status=FinalStatus(final),
        progress=float(application.get("progress") or 0.0),
        usage=usage,
        diagnostics=str(application.get("diagnostics") or (view.get("reason") if ended else "") or ""),
        start_time=time_of(application.get("started") or row.get("submitted")),
        finish_time=time_of(application.get("finished") or (view.get("now") if ended else None)),
    )


def _node(row: Dict[str, Any]) -> NodeReport:
    total, free = row["all"], row["free"]
    return NodeReport(
        id=str(row["node"]),
        http_address=str(row.get("page") or ""),
        rack_name=str(row.get("rack") or ""),
        labels={label for label in row.get("labels") or [] if label},
        state=NodeState(str(row["state"])),
        health_report=str(row.get("health") or ""),
        total_resources=Resources(total["memory_mib"], total["vcores"]),
        used_resources=Resources(max(0, total["memory_mib"] - free["memory_mib"]), max(0, total["vcores"] - free["vcores"])),
    )


def _queue(row: Dict[str, Any]) -> Queue:
    share = (row.get("shares") or {}).get("") or {}
    return Queue(
        name=str(row["queue"]).rpartition(".")[2],
        state=QueueState(str(row["state"]) if str(row["state"]).upper() == "RUNNING" else "STOPPED"),
        capacity=float(share.get("capacity") or 0.0) * 100,
        max_capacity=float(share.get("max_capacity") or 0.0) * 100,
        # The ResourceManager's answer that ydl reads does not have it.
        percent_used=0.0,
        node_labels=set(row.get("labels") or []),
        default_node_label=str(row.get("label") or ""),
    )


def _time(value: Any, name: str) -> Optional[datetime.datetime]:
    if value is None or isinstance(value, datetime.datetime):
        return value
    if not isinstance(value, str):
        raise TypeError("{} must be a datetime or str, got {!r}".format(name, type(value).__name__))
    for form in _FORMATS:
        with contextlib.suppress(ValueError):
            parsed = datetime.datetime.strptime(value, form)
            today = datetime.date.today()
            return parsed if "Y" in form else datetime.datetime.combine(today, parsed.time())
    raise ValueError("Unable to parse {!r} from {!r} as datetime".format(value, name))


__all__ = ["ApplicationClient", "Client", "Properties", "properties"]
