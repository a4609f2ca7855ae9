"""Program `skein`: its commands for applications, containers and the key-value store."""

import argparse
import sys
from typing import Any, List, Optional

from .application import ApplicationClient
from .core import Client
from .exceptions import SkeinError
from .utils import format_table, humanize_timedelta

_COLUMNS = ("application_id", "name", "state", "status", "containers", "vcores", "memory", "runtime")


def main(argv: Optional[List[str]] = None) -> None:
    """Runs a command; errors end with code 1."""
    options = _parser().parse_args(argv)
    try:
        options.run(options)
    except (SkeinError, ValueError, KeyError, TypeError, OSError, NotImplementedError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        print("Error: {}".format(text), file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    from . import __version__

    parser = argparse.ArgumentParser(prog="skein", description="Define and run YARN applications")
    parser.add_argument("--version", action="version", version="skein {} (ydl)".format(__version__))
    groups = parser.add_subparsers(required=True, metavar="command")
    application = _group(groups, "application", "Manage applications")
    _command(application, "submit", _submit, "Submit an application", "spec")
    listed = _command(application, "ls", _list, "List applications")
    listed.add_argument("--all", "-a", action="store_true")
    listed.add_argument("--state", "-s", action="append", default=None)
    for name in ("name", "queue", "user", "started-begin", "started-end", "finished-begin", "finished-end"):
        listed.add_argument("--" + name)
    _command(application, "status", _status, "Show an application", "app_id")
    for name, run, text in (("logs", _logs, "Print the logs"), ("kill", _kill, "Kill an application")):
        _command(application, name, run, text, "app_id").add_argument("--user", default="")
    _command(application, "mv", lambda it: Client().move_application(it.app_id, it.queue), "Move it", "app_id", "queue")
    _command(application, "specification", _specification, "Print the specification", "app_id")
    shutdown = _command(application, "shutdown", _shutdown, "End an application", "app_id")
    shutdown.add_argument("--status", default="SUCCEEDED")
    shutdown.add_argument("--diagnostics")
    container = _group(groups, "container", "Manage containers")
    listed = _command(container, "ls", _containers, "List containers", "app_id")
    listed.add_argument("--all", "-a", action="store_true")
    listed.add_argument("--service", action="append", default=None)
    listed.add_argument("--state", action="append", default=None)
    _command(container, "kill", lambda it: _connect(it).kill_container(it.id), "Stop a container", "app_id").add_argument(
        "--id", required=True
    )
    scale = _command(container, "scale", lambda it: _connect(it).scale(it.service, it.number), "Scale a service", "app_id")
    scale.add_argument("--service", "-s", required=True)
    scale.add_argument("--number", "-n", type=int, required=True)
    store = _group(groups, "kv", "Manage the key-value store")
    _command(store, "ls", lambda it: _print(*sorted(_connect(it).kv)), "List keys", "app_id")
    get = _command(store, "get", _get, "Print a value", "app_id")
    get.add_argument("--key", required=True)
    get.add_argument("--wait", action="store_true")
    put = _command(store, "put", _put, "Set a value, by default from stdin", "app_id")
    put.add_argument("--key", required=True)
    put.add_argument("--value")
    _command(store, "del", _delete, "Delete a key", "app_id").add_argument("--key", required=True)
    driver = _group(groups, "driver", "Accepted: there is no driver")
    for name in ("start", "stop", "restart", "address", "pid"):
        _command(driver, name, lambda it: None, "Do nothing")
    return parser


def _group(groups: Any, name: str, text: str) -> Any:
    return groups.add_parser(name, help=text, description=text).add_subparsers(required=True, metavar="command")


def _command(group: Any, name: str, run: Any, text: str, *operands: str) -> Any:
    parser = group.add_parser(name, help=text, description=text)
    for operand in operands:
        parser.add_argument(operand)
    parser.set_defaults(run=run)
    return parser


def _connect(options: Any) -> Any:
    if options.app_id == "current":
        return ApplicationClient.from_current()
    return Client().connect(options.app_id, wait=False)


def _print(*lines: str) -> None:
    for line in lines:
        print(line)


def _submit(options: Any) -> None:
    print(Client().submit(options.spec))


def _applications(reports: Any) -> None:
    rows = []
    for it in reports:
        used = it.usage.used_resources
        runtime = humanize_timedelta(it.runtime)
        rows.append((it.id, it.name, it.state, it.final_status, it.usage.num_used_containers, used.vcores, used.memory, runtime))
    print(format_table(_COLUMNS, rows))


def _list(options: Any) -> None:
    from .model import ApplicationState

    states = ApplicationState.values() if options.all else options.state
    _applications(
        Client().get_applications(
            states, options.name, options.user, options.queue, options.started_begin, options.started_end,
            options.finished_begin, options.finished_end,
        )
    )


def _status(options: Any) -> None:
    _applications([Client().application_report(options.app_id)])


def _logs(options: Any) -> None:
    Client().application_logs(options.app_id, options.user).dump()


def _kill(options: Any) -> None:
    Client().kill_application(options.app_id, options.user)


def _specification(options: Any) -> None:
    print(_connect(options).get_specification().to_yaml())


def _shutdown(options: Any) -> None:
    _connect(options).shutdown(options.status, options.diagnostics)


def _containers(options: Any) -> None:
    from .model import ContainerState

    states = ContainerState.values() if options.all else options.state
    found = _connect(options).get_containers(options.service, states)
    rows = [(it.service_name, it.id, it.state, humanize_timedelta(it.runtime)) for it in found]
    print(format_table(("service", "id", "state", "runtime"), rows))


def _get(options: Any) -> None:
    store = _connect(options).kv
    value = store.wait(options.key) if options.wait else store.get(options.key)
    if value is None:
        raise ValueError("Key {!r} is not set".format(options.key))
    sys.stdout.buffer.write(value + b"\n")
    sys.stdout.buffer.flush()


def _put(options: Any) -> None:
    value = sys.stdin.buffer.readline().strip() if options.value is None else options.value.encode("utf-8")
    _connect(options).kv.put(options.key, value)


def _delete(options: Any) -> None:
    if not _connect(options).kv.discard(options.key):
        raise ValueError("Key {!r} is not set".format(options.key))


if __name__ == "__main__":
    main()
