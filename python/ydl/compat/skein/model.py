"""Module `skein.model`: specifications of applications, and reports about them."""

import json
import os
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlparse

from .exceptions import unsupported
from .objects import Enum, Specification, bullets, required, yaml
from .reports import (
    ApplicationLogs,
    ApplicationReport,
    ApplicationState,
    Container,
    ContainerState,
    FinalStatus,
    NodeReport,
    NodeState,
    Queue,
    QueueState,
    ResourceUsageReport,
)
from .resources import Resources, parse_memory

_ARCHIVES = (".zip", ".tar.gz", ".tgz")


def container_instance_from_string(id: Any) -> Tuple[str, int]:
    """Splits the name of a container, such as `worker_0`."""
    service, _, instance = id.rpartition("_") if isinstance(id, str) else ("", "", "")
    if not service or not instance.isdigit():
        raise ValueError("Invalid container id {!r}".format(id))
    return service, int(instance)


class LogLevel(Enum):
    """Log level of skein's master, which ydl ignores."""

    _values = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")


class FileVisibility(Enum):
    """Visibility of a file on a node, which ydl ignores."""

    _values = ("APPLICATION", "PUBLIC", "PRIVATE")


class FileType(Enum):
    """Kind of a file: archives are unpacked."""

    _values = ("FILE", "ARCHIVE")


class File(Specification):
    """File or archive of a service."""

    _params = ("source", "type", "visibility", "size", "timestamp")

    def __init__(
        self,
        source: str = required,
        type: Any = "infer",
        visibility: Any = FileVisibility.APPLICATION,  # type: ignore[attr-defined]
        size: int = 0,
        timestamp: int = 0,
    ) -> None:
        if source is required:
            raise TypeError("parameter 'source' is required but wasn't provided")
        self.source = source
        self.type = type
        self.visibility = visibility
        self.size, self.timestamp = size, timestamp
        self._validate()

    @property
    def source(self) -> str:
        """URL of the file."""
        return self._source

    @source.setter
    def source(self, value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError("'source' must be a string")
        self._source = _url(value)

    @property
    def type(self) -> Any:
        """Kind of the file, by default inferred from its name."""
        if self._type != "infer":
            return self._type
        return FileType("archive" if self._source.endswith(_ARCHIVES) else "file")

    @type.setter
    def type(self, value: Any) -> None:
        self._type = value if value == "infer" else FileType(value)

    @property
    def visibility(self) -> Any:
        """Visibility of the file on its node."""
        return self._visibility

    @visibility.setter
    def visibility(self, value: Any) -> None:
        self._visibility = FileVisibility(value)

    def _validate(self) -> None:
        self._check("source", str)
        self._check_number("size")
        self._check_number("timestamp")

    def __repr__(self) -> str:
        return "File<source={!r}, type={!r}>".format(self.source, self.type)

    @classmethod
    def from_dict(cls, obj: Any, _origin: Optional[str] = None) -> "File":
        """Creates it from a path or a dictionary. Relative paths are below `_origin`."""
        obj = {"source": obj} if isinstance(obj, str) else obj
        cls._check_keys(obj)
        if _origin and isinstance(obj.get("source"), str):
            obj = {**obj, "source": _url(obj["source"], _origin)}
        return cls(**obj)


class EnvironmentFile(File):
    """Python environment of an application, which ydl packs and activates in all of its containers."""

    @property
    def path(self) -> str:
        """Path, or URL in HDFS."""
        return self.source[len("file://") :] if self.source.startswith("file://") else self.source


def _url(path: str, origin: str = ".") -> str:
    """Returns the URL of a path, unless it is a URL."""
    if urlparse(path).scheme:
        return path
    return "file://" + os.path.abspath(os.path.join(origin, path))


def _files(files: Any) -> Any:
    if not isinstance(files, dict):
        return {} if files is None else files
    return {name: file if isinstance(file, File) else File(file) for name, file in files.items()}


def _read_files(obj: Dict[str, Any], origin: Optional[str]) -> None:
    if isinstance(obj.get("files"), dict):
        obj["files"] = {name: File.from_dict(file, _origin=origin) for name, file in obj["files"].items()}


def _check_files(spec: Any) -> None:
    spec._check_dict("files", File)
    for name, file in spec.files.items():
        if "/" in (name[2:] if name.startswith("./") else name):
            raise ValueError(
                "Keys in `files` must be filenames only (no directories allowed), found {!r}".format(name)
            )
        file._validate()


class Service(Specification):
    """Service of an application: equal containers that run a script."""

    _params = (
        "resources", "script", "instances", "files", "env", "depends", "max_restarts", "allow_failures", "node_label", "nodes",
        "racks", "relax_locality",
    )

    def __init__(
        self,
        resources: Resources = required,
        script: str = required,
        instances: int = 1,
        files: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
        depends: Any = None,
        max_restarts: int = 0,
        allow_failures: bool = False,
        node_label: str = "",
        nodes: Optional[List[str]] = None,
        racks: Optional[List[str]] = None,
        relax_locality: bool = False,
    ) -> None:
        for name, value in (("resources", resources), ("script", script)):
            if value is required:
                raise TypeError("parameter {!r} is required but wasn't provided".format(name))
        self.resources, self.script, self.instances = resources, script, instances
        self.files, self.env = _files(files), {} if env is None else env
        self.depends = set() if depends is None else set(depends)
        self.max_restarts, self.allow_failures, self.node_label = max_restarts, allow_failures, node_label
        self.nodes, self.racks = [] if nodes is None else nodes, [] if racks is None else racks
        self.relax_locality = relax_locality
        self._validate()

    def _validate(self) -> None:
        self._check_number("instances")
        self._check_number("max_restarts", -1)
        self._check("node_label", str)
        self._check("relax_locality", bool)
        self._check("allow_failures", bool)
        self._check("resources", Resources)
        self._check("script", str)
        self._check_all("nodes", list, str)
        self._check_all("racks", list, str)
        self._check_all("depends", set, str)
        self._check_dict("env", str)
        self.resources._validate(is_request=True)
        _check_files(self)
        if not self.script:
            raise ValueError("A script must be provided")

    def __repr__(self) -> str:
        return "Service<instances={}, ...>".format(self.instances)

    @classmethod
    def from_dict(cls, obj: Dict[str, Any], _origin: Optional[str] = None) -> "Service":
        """Creates it from a dictionary."""
        if isinstance(obj, dict) and isinstance(obj.get("commands"), list) and "script" not in obj:
            # Before skein 0.6 a service had commands, which ran until one failed.
            obj = {**obj, "script": "\n".join(["set -e", *map(str, obj["commands"])])}
            del obj["commands"]
        cls._check_keys(obj)
        obj = dict(obj)
        if isinstance(obj.get("resources"), dict):
            obj["resources"] = Resources.from_dict(obj["resources"])
        _read_files(obj, _origin)
        return cls(**obj)


class ACLs(Specification):
    """Users and groups that may view or modify an application. `*` allows all users."""

    _params = ("enable", "view_users", "view_groups", "modify_users", "modify_groups", "ui_users")

    def __init__(
        self,
        enable: bool = False,
        view_users: Optional[List[str]] = None,
        view_groups: Optional[List[str]] = None,
        modify_users: Optional[List[str]] = None,
        modify_groups: Optional[List[str]] = None,
        ui_users: Optional[List[str]] = None,
    ) -> None:
        self.enable = enable
        self.view_users = [] if view_users is None else view_users
        self.view_groups = [] if view_groups is None else view_groups
        self.modify_users = [] if modify_users is None else modify_users
        self.modify_groups = [] if modify_groups is None else modify_groups
        self.ui_users = [] if ui_users is None else ui_users
        self._validate()

    def _validate(self) -> None:
        self._check("enable", bool)
        for name in self._params[1:]:
            self._check_all(name, list, str)

    def __repr__(self) -> str:
        return "ACLs<enable={!r}, ...>".format(self.enable)


class Security(Specification):
    """Certificate and key of an application, which ydl ignores: each job has its own."""

    _params = ("cert_file", "key_file", "cert_bytes", "key_bytes")

    def __init__(self, cert_file: Any = None, key_file: Any = None, cert_bytes: Any = None, key_bytes: Any = None) -> None:
        self.cert_file = File(cert_file) if isinstance(cert_file, str) else cert_file
        self.key_file = File(key_file) if isinstance(key_file, str) else key_file
        self.cert_bytes = cert_bytes.encode() if isinstance(cert_bytes, str) else cert_bytes
        self.key_bytes = key_bytes.encode() if isinstance(key_bytes, str) else key_bytes
        self._validate()

    def _validate(self) -> None:
        for kind in ("cert", "key"):
            self._check(kind + "_file", File, nullable=True)
            self._check(kind + "_bytes", bytes, nullable=True)
        for kind in ("cert", "key"):
            if (getattr(self, kind + "_file") is None) == (getattr(self, kind + "_bytes") is None):
                raise ValueError("Must specify exactly one of {0}_file or {0}_bytes".format(kind))

    def __repr__(self) -> str:
        return "Security<...>"

    def to_dict(self, skip_nulls: bool = True) -> Dict[str, Any]:
        """Returns it as a dictionary."""
        plain = super().to_dict(skip_nulls)
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in plain.items()}

    @classmethod
    def from_default(cls) -> "Security":
        """Rejected: each job has its own certificate."""
        raise unsupported("Security.from_default", "each job gets its own certificate; leave `security` out")

    @classmethod
    def new_credentials(cls) -> "Security":
        """Rejected: each job has its own certificate."""
        raise unsupported("Security.new_credentials", "each job gets its own certificate; leave `security` out")


class Master(Specification):
    """Container of the master, and the script whose end ends the application."""

    _params = ("resources", "script", "files", "env", "log_level", "log_config", "security")

    def __init__(
        self,
        resources: Optional[Resources] = None,
        script: str = "",
        files: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
        log_level: Any = LogLevel.INFO,  # type: ignore[attr-defined]
        log_config: Any = None,
        security: Optional[Security] = None,
    ) -> None:
        self.resources = Resources(memory="512 MiB", vcores=1) if resources is None else resources
        self.script, self.files, self.env = script, _files(files), {} if env is None else env
        self.log_level = LogLevel(log_level)
        self.log_config = File(log_config) if isinstance(log_config, str) else log_config
        self.security = security
        self._validate()

    def _validate(self) -> None:
        self._check("resources", Resources)
        self._check("script", str)
        self._check("log_config", File, nullable=True)
        self._check("security", Security, nullable=True)
        self._check_dict("env", str)
        self.resources._validate(is_request=True)
        _check_files(self)

    def __repr__(self) -> str:
        return "Master<...>"

    @classmethod
    def from_dict(cls, obj: Dict[str, Any], _origin: Optional[str] = None) -> "Master":
        """Creates it from a dictionary."""
        cls._check_keys(obj)
        obj = dict(obj)
        if isinstance(obj.get("resources"), dict):
            obj["resources"] = Resources.from_dict(obj["resources"])
        if isinstance(obj.get("security"), dict):
            obj["security"] = Security.from_dict(obj["security"])
        if obj.get("log_config") is not None:
            obj["log_config"] = File.from_dict(obj["log_config"], _origin=_origin)
        _read_files(obj, _origin)
        return cls(**obj)


class ApplicationSpec(Specification):
    """Application: its services and its master."""

    _params = (
        "services", "master", "name", "queue", "user", "node_label", "tags", "file_systems", "acls", "max_attempts",
    )

    def __init__(
        self,
        services: Optional[Dict[str, Service]] = None,
        master: Optional[Master] = None,
        name: str = "skein",
        queue: str = "default",
        user: str = "",
        node_label: str = "",
        tags: Any = None,
        file_systems: Optional[List[str]] = None,
        acls: Optional[ACLs] = None,
        max_attempts: int = 1,
    ) -> None:
        self.services = {} if services is None else services
        self.master = Master() if master is None else master
        self.name, self.queue, self.user, self.node_label = name, queue, user, node_label
        self.tags = set() if tags is None else set(tags)
        self.file_systems = [] if file_systems is None else file_systems
        self.acls = ACLs() if acls is None else acls
        self.max_attempts = max_attempts
        self._validate()

    def _validate(self) -> None:
        for name in ("name", "queue", "user", "node_label"):
            self._check(name, str)
        self._check_all("tags", set, str)
        self._check_all("file_systems", list, str)
        self._check_number("max_attempts", 1)
        self._check("acls", ACLs)
        self._check("master", Master)
        self._check_dict("services", Service)
        self.acls._validate()
        self.master._validate()
        if not self.services and not self.master.script:
            raise ValueError("There must be at least one service")
        for name, service in self.services.items():
            service._validate()
            missing = sorted(service.depends.difference(self.services))
            if missing:
                raise ValueError("Unknown service dependencies for service {!r}:\n{}".format(name, bullets(missing)))
        _check_cycles({name: service.depends for name, service in self.services.items()})

    def __repr__(self) -> str:
        return "ApplicationSpec<name={!r}, queue={!r}, services=...>".format(self.name, self.queue)

    @classmethod
    def _from_any(cls, spec: Any) -> "ApplicationSpec":
        """Returns the specification of a path, a dictionary or a specification."""
        if isinstance(spec, str):
            return cls.from_file(spec)
        if isinstance(spec, dict):
            return cls.from_dict(spec)
        if not isinstance(spec, cls):
            raise TypeError("spec must be either an ApplicationSpec, path, or dict, got {}".format(type(spec).__name__))
        return spec

    @classmethod
    def from_dict(cls, obj: Dict[str, Any], _origin: Optional[str] = None) -> "ApplicationSpec":
        """Creates it from a dictionary."""
        cls._check_keys(obj)
        obj = dict(obj)
        if isinstance(obj.get("services"), dict):
            services = obj["services"].items()
            obj["services"] = {name: Service.from_dict(service, _origin=_origin) for name, service in services}
        if isinstance(obj.get("acls"), dict):
            obj["acls"] = ACLs.from_dict(obj["acls"])
        if isinstance(obj.get("master"), dict):
            obj["master"] = Master.from_dict(obj["master"], _origin=_origin)
        return cls(**obj)

    @classmethod
    def from_file(cls, path: str, format: str = "infer") -> "ApplicationSpec":
        """Reads it from a JSON or YAML file."""
        origin = os.path.abspath(os.path.dirname(path))
        format = _format(path, format)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return cls.from_dict(json.loads(text) if format == "json" else yaml().safe_load(text), _origin=origin)

    def to_file(self, path: str, format: str = "infer", skip_nulls: bool = True) -> None:
        """Writes it to a JSON or YAML file."""
        write = self.to_json if _format(path, format) == "json" else self.to_yaml
        text = write(skip_nulls=skip_nulls)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _format(path: str, format: str) -> str:
    if format not in ("infer", "json", "yaml"):
        raise ValueError("Unknown file format: {!r}".format(format))
    if format != "infer":
        return format
    found = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}.get(os.path.splitext(path)[1])
    if found is None:
        raise ValueError("Can't infer format from filepath {!r}, please specify manually".format(path))
    return found


def _check_cycles(dependencies: Dict[str, Any]) -> None:
    done = set()
    for start in dependencies:
        path: List[Tuple[str, List[str]]] = [(start, sorted(dependencies[start]))]
        while path:
            name, rest = path[-1]
            rest = [other for other in rest if other not in done]
            if not rest:
                done.add(name)
                path.pop()
                continue
            names = [name for name, _ in path]
            if rest[0] in names:
                cycle = names[names.index(rest[0]) :] + [rest[0]]
                raise ValueError("Dependency cycle detected between services: " + "->".join(cycle))
            path.append((rest[0], sorted(dependencies[rest[0]])))


__all__ = [
    "ACLs",
    "ApplicationLogs",
    "ApplicationReport",
    "ApplicationSpec",
    "ApplicationState",
    "Container",
    "ContainerState",
    "File",
    "FileType",
    "FileVisibility",
    "FinalStatus",
    "LogLevel",
    "Master",
    "NodeReport",
    "NodeState",
    "Queue",
    "QueueState",
    "ResourceUsageReport",
    "Resources",
    "Security",
    "Service",
    "container_instance_from_string",
    "parse_memory",
]
