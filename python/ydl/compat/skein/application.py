"""Client of a running application: `skein.ApplicationClient`."""

import json
import os
import tempfile
from datetime import datetime
from typing import Any, Callable, Dict, List, Optional, Sequence, Set
from urllib.parse import quote

from ... import program
from ...errors import KeyMissing
from ...master_client import DirectoryEndpoint, MasterClient, TaskEndpoint
from .exceptions import translated
from .kv import KeyValueStore
from .model import ACLs, ApplicationSpec, Container, ContainerState, FinalStatus, Master, Resources, Service
from .operations import task_of
from .properties import properties
from .reports import time_of
from .ui import WebUI

#: States of containers by the state of their tasks.
_STATES = {
    "backing-off": "WAITING",
    "requested": "REQUESTED",
    "launching": "REQUESTED",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "stopped": "KILLED",
}
#: States of jobs that have ended.
ENDED = ("succeeded", "failed", "killed", "lost", "finished")
_ACTIVE = ("WAITING", "REQUESTED", "RUNNING")
_FPGA = "yarn.io/fpga"
#: Restart limit that stands for no limit.
_UNLIMITED = 1_000_000


class ApplicationClient:
    """Client of a running application, in one of its containers or elsewhere."""

    def __init__(self, address: Optional[str], app_id: str, security: Any = None) -> None:
        self.address, self.id, self.security = address, app_id, security
        self._master: Optional[MasterClient] = None
        self._drivers: Optional[Set[str]] = None
        self._kv = KeyValueStore(self)
        self._ui = WebUI(self)

    @classmethod
    def from_current(cls) -> Any:
        """Returns the client of the application that this container belongs to."""
        if not os.environ.get("YDL_MASTER"):
            raise ValueError("Not running inside a container")
        if "TF_YARN_N_TRY" in os.environ:
            # In tf-yarn each try has a store of its own.
            from ..tf_yarn.application import Application

            return Application.from_current()
        return cls(properties.appmaster_address, os.environ.get("YDL_JOB", ""))

    def __repr__(self) -> str:
        return "ApplicationClient<{}, {}>".format(self.id, self.address)

    def __enter__(self) -> "ApplicationClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the connection. The application continues."""
        self._master = None

    @property
    def kv(self) -> KeyValueStore:
        """Key-value store of the application."""
        return self._kv

    @property
    def ui(self) -> WebUI:
        """Pages of the application."""
        return self._ui

    def get_specification(self) -> ApplicationSpec:
        """Returns the specification, as far as the job has it."""
        return _specification(self._call("GET", "/v1/spec").json())

    def get_containers(self, services: Optional[Sequence[str]] = None, states: Any = None) -> List[Container]:
        """Returns containers of services, by default those that wait or run."""
        chosen = {str(ContainerState(state)) for state in (_ACTIVE if states is None else states)}
        if self._drivers is None:
            roles = self._call("GET", "/v1/spec").json()["roles"]
            self._drivers = {role["name"] for role in roles if _is_driver(role)}
        listed = self._tasks()
        names = {role["role"] for role in listed["roles"]} - self._drivers
        if services is not None:
            for unknown in sorted(set(services) - names):
                raise ValueError("Unknown service '{}'".format(unknown))
        stopped = set(listed["stopped"])
        found = [_container(task, task["task"] in stopped) for task in listed["tasks"]]
        wanted = names if services is None else set(services)
        found = [it for it in found if str(it.state) in chosen and it.service_name in wanted]
        return sorted(found, key=lambda it: (it.service_name, it.instance))

    def add_container(self, service: str, env: Optional[Dict[str, str]] = None) -> Container:
        """Adds a container to a service, with additional variables."""
        added = self._call("POST", "/v1/tasks", body={"role": service, "env": env or {}}, repeat=False).json()
        return _container({"task": added["task"], "state": "requested"}, False)

    def scale(self, service: str, count: Optional[int] = None, delta: Optional[int] = None, **kwargs: Any) -> List[Container]:
        """Changes the number of containers of a service. Returns those that were added or stopped: waiting ones first, and
        of the running ones the oldest first."""
        if "instances" in kwargs:
            count = kwargs.pop("instances")
        if kwargs:
            raise TypeError("scale() got an unexpected keyword argument {!r}".format(sorted(kwargs)[0]))
        if count is not None and delta is not None:
            raise ValueError("cannot specify both `count` and `delta`")
        if count is None and delta is None:
            raise ValueError("must specify either `count` or `delta`")
        if count is not None and count < 0:
            raise ValueError("count must be >= 0")
        active = self.get_containers([service])
        target = count if count is not None else max(0, len(active) + (delta or 0))
        if target >= len(active):
            return [self.add_container(service) for _ in range(target - len(active))]
        age = lambda it: (_ACTIVE.index(str(it.state)), it.start_time or datetime.max, it.instance)  # noqa: E731
        surplus = sorted(active, key=age)[: len(active) - target]
        for container in surplus:
            self.kill_container(container.id)
            container.state = ContainerState("KILLED")
        return surplus

    def kill_container(self, id: str) -> None:
        """Stops a container for good."""
        self._call("DELETE", "/v1/tasks/" + quote(task_of(id), safe=""))

    def set_progress(self, progress: float) -> None:
        """Sets the progress that the ResourceManager shows, from 0 to 1."""
        if not 0 <= progress <= 1:
            raise ValueError("progress must be between 0 and 1, got {:.3f}".format(progress))
        self._call("PUT", "/v1/progress", body={"progress": float(progress)})

    def shutdown(self, status: Any = "SUCCEEDED", diagnostics: Optional[str] = None) -> None:
        """Ends the application. Diagnostics describe a failure."""
        status = str(FinalStatus(status))
        if status == "UNDEFINED":
            raise ValueError("an application does not end with the status UNDEFINED")
        self._call("POST", "/v1/end", body={"outcome": status.lower(), "reason": diagnostics or ""})

    def _tasks(self) -> Any:
        return self._call("GET", "/v1/tasks").json()

    def _owners(self) -> Callable[[Optional[str]], Optional[str]]:
        """Returns a function that names owners of keys, and lists the tasks for an owner that it does not know yet."""
        known: Dict[str, str] = {}

        def name(container: Optional[str]) -> Optional[str]:
            if container is None:
                return None
            if container not in known:
                for task in self._tasks()["tasks"]:
                    known[task.get("container") or ""] = "{0}_{2}".format(*task["task"].rpartition(":"))
            # A container that is gone keeps its own name.
            return known.setdefault(container, container)

        return name

    def _call(
        self, method: str, path: str, query: Optional[Dict[str, Any]] = None, body: Any = None, wait: float = 0.0, repeat: bool = True
    ) -> Any:
        content = None if body is None else json.dumps(body).encode("utf-8")
        with translated():
            if self._master is None:
                self._master = MasterClient(self._endpoint())
            try:
                return self._master.call(method, path, query, content, wait=wait, repeat=repeat)
            except KeyMissing as error:
                raise KeyError(error.message) from None

    def _endpoint(self) -> TaskEndpoint:
        if self.id == os.environ.get("YDL_JOB"):
            return TaskEndpoint()
        # It is removed with this object.
        self._files = tempfile.TemporaryDirectory(prefix="ydl-")
        return DirectoryEndpoint(self._files.name, self._refresh)

    def _refresh(self) -> None:
        """Updates the files of the endpoint, while the application runs."""
        program.call(["master-access", self.id, self._files.name])


def _container(task: Dict[str, Any], stopped: bool) -> Container:
    service, _, instance = task["task"].rpartition(":")
    state = "KILLED" if stopped else _STATES.get(task["state"], "RUNNING")
    runs, ended = state == "RUNNING", state not in _ACTIVE
    return Container(
        service_name=service,
        instance=int(instance),
        state=ContainerState(state),
        yarn_container_id=task.get("container") or "",
        yarn_node_http_address="",
        start_time=time_of(task.get("since")) if runs else None,
        finish_time=time_of(task.get("since")) if ended else None,
        exit_message=task.get("last_ending") or "",
    )


def _is_driver(role: Dict[str, Any]) -> bool:
    """Returns True for the role of the application's master, which is no service."""
    return bool(role["completion"] == "primary")


def _specification(spec: Dict[str, Any]) -> ApplicationSpec:
    services: Dict[str, Service] = {}
    master = Master()
    for role in spec["roles"]:
        sizes = role["resources"]
        fields = {
            "resources": Resources(sizes["memory_mib"], sizes["vcores"], sizes["gpus"], sizes["other"].get(_FPGA, 0)),
            "script": _script(role["command"]),
            "files": {file["name"]: file["source"] for file in spec["files"]},
            "env": dict(role["env"]),
        }
        if _is_driver(role):
            master = Master(**fields)
            continue
        limit, placement = role["restart"]["limit"], role["placement"]
        services[role["name"]] = Service(
            **fields,
            instances=role["instances"],
            depends=set(role.get("depends_on") or []),
            max_restarts=-1 if limit >= _UNLIMITED else limit,
            allow_failures=role["tolerate"] > 0,
            node_label=placement["node_label"] or "",
            nodes=placement["nodes"],
            racks=placement["racks"],
            relax_locality=bool(placement["nodes"] or placement["racks"]) and not placement.get("strict"),
        )
    options = spec["cluster_options"]
    return ApplicationSpec(
        services=services,
        master=master,
        name=spec["name"],
        queue=options["queue"] or "default",
        node_label=options["node_label"] or "",
        tags=set(options["tags"]),
        file_systems=options["file_systems"],
        acls=ACLs(enable=bool(options["viewers"] or options["modifiers"])),
        max_attempts=options["master"]["attempts"],
    )


def _script(command: Dict[str, Any]) -> str:
    words = command.get("program")
    if words is None:
        return str(command.get("shell") or "")
    if len(words) == 3 and words[:2] == ["bash", "-c"]:
        # Without the lines that set the variables of a container.
        lines = str(words[2]).splitlines()
        own = [at for at, line in enumerate(lines) if line.startswith("ydl python-package ")]
        return "\n".join(lines[own[0] + 1 :] if own else lines)
    return " ".join(words)
