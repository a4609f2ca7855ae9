"""Types and arguments of skein's names, without a job."""

import datetime
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

from ydl.compat import skein
from ydl.compat.skein import application, core, kv, model, reports
from ydl.compat.skein.exceptions import ApplicationNotRunningError, ConnectionError, SkeinError, TimeoutError


def service(**more):
    return model.Service(resources=model.Resources("1 GiB", 1), script="true", **more)


class Models(unittest.TestCase):
    def test_sizes_have_skeins_units(self) -> None:
        for text, mib in (("2 GiB", 2048), ("1 gb", 954), (512, 512), (0.5, 1), ("100b", 1), ("1.5 gib", 1536), ("gib", 1024)):
            self.assertEqual(model.parse_memory(text), mib, text)
        for text in ("", "many", "3 parsecs"):
            with self.assertRaises(ValueError):
                model.parse_memory(text)
        with self.assertRaises(TypeError):
            model.parse_memory(None)

    def test_a_specification_survives_json_and_pickle(self) -> None:
        spec = model.ApplicationSpec(
            name="whole",
            tags={"a"},
            services={"web": service(files={"x.zip": "/data/x.zip"}, depends={"base"}), "base": service(instances=0)},
            master=model.Master(script="run", log_level="debug"),
            acls=model.ACLs(enable=True, view_users=["*"]),
        )
        self.assertEqual(model.ApplicationSpec.from_json(spec.to_json()), spec)
        self.assertEqual(pickle.loads(pickle.dumps(spec)), spec)
        self.assertEqual(spec.services["web"].files["x.zip"].type, "archive")
        self.assertEqual(spec.to_dict()["services"]["web"]["files"]["x.zip"]["source"], "file:///data/x.zip")

    def test_relative_paths_are_those_of_the_specifications_file(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "spec.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"services": {"a": {"resources": {"memory": 1, "vcores": 1}, "script": "x", "files": {"f": "f.py"}}}}')
            spec = model.ApplicationSpec.from_file(path)
            self.assertEqual(spec.services["a"].files["f"].source, "file://" + os.path.join(directory, "f.py"))
            spec.to_file(path)
            self.assertEqual(model.ApplicationSpec.from_file(path), spec)
        with self.assertRaises(ValueError):
            model.ApplicationSpec.from_file("spec.txt")

    def test_invalid_specifications_raise_skeins_exceptions(self) -> None:
        for kind, make in (
            (TypeError, lambda: model.Service()),
            (TypeError, lambda: model.Resources(1)),
            (TypeError, lambda: model.ACLs(view_users="*")),
            (ValueError, lambda: service(instances=-1)),
            (ValueError, lambda: service(files={"a/b": "c"})),
            (ValueError, lambda: model.ApplicationSpec()),
            (ValueError, lambda: model.ApplicationSpec(services={"a": service(depends=["b"])})),
            (ValueError, lambda: model.ApplicationSpec(services={"a": service(depends=["b"]), "b": service(depends=["a"])})),
            (ValueError, lambda: model.ApplicationSpec.from_dict({"nmae": "x"})),
            (ValueError, lambda: model.Security(cert_bytes=b"x")),
            (ValueError, lambda: model.LogLevel("loud")),
        ):
            with self.assertRaises(kind):
                make()

    def test_enumerations_equal_their_names_in_any_case(self) -> None:
        self.assertEqual(model.ContainerState("running"), "RUNNING")
        self.assertIs(pickle.loads(pickle.dumps(model.ContainerState.KILLED)), model.ContainerState("killed"))
        self.assertEqual([str(it) for it in model.FinalStatus], ["SUCCEEDED", "KILLED", "FAILED", "UNDEFINED"])

    def test_exceptions_have_skeins_bases(self) -> None:
        self.assertTrue(issubclass(ApplicationNotRunningError, ConnectionError))
        self.assertTrue(issubclass(ConnectionError, OSError) and issubclass(ConnectionError, SkeinError))
        self.assertTrue(issubclass(TimeoutError, SkeinError))


class Operations(unittest.TestCase):
    def test_conditions_are_comparisons(self) -> None:
        self.assertEqual(repr(kv.value("a") == b"1"), "value('a') == b'1'")
        self.assertEqual((kv.owner("a") != None).rhs, None)  # noqa: E711
        self.assertTrue(kv.is_condition(kv.exists("a")) and kv.is_operation(kv.exists("a")))
        for kind, make in (
            (TypeError, lambda: kv.value("a") == "text"),
            (TypeError, lambda: kv.owner("a") < None),
            (NotImplementedError, lambda: kv.owner("a") < "worker_0"),
            (ValueError, lambda: kv.owner("a") == "worker"),
            (TypeError, lambda: kv.value(1)),
        ):
            with self.assertRaises(kind):
                make()

    def test_operations_check_their_arguments(self) -> None:
        for kind, make in (
            (ValueError, lambda: kv.put("a")),
            (TypeError, lambda: kv.put("a", "text")),
            (TypeError, lambda: kv.get(1)),
            (TypeError, lambda: kv.get("a", default="text")),
            (ValueError, lambda: kv.count(start="a", prefix="b")),
            (ValueError, lambda: kv.EventFilter(key="a", prefix="b")),
            (TypeError, lambda: kv.EventFilter(key=1)),
        ):
            with self.assertRaises(kind):
                make()

    def test_filters_select_keys_and_types(self) -> None:
        put, delete = kv.EventType("PUT"), kv.EventType("delete")
        self.assertTrue(kv.EventFilter().selects("x", put))
        self.assertEqual(kv.EventFilter(prefix="ab").end, "ac")
        self.assertFalse(kv.EventFilter(prefix="ab").selects("ac", put))
        self.assertTrue(kv.EventFilter(start="a", end="b").selects("az", delete))
        self.assertFalse(kv.EventFilter(key="a", event_type="put").selects("a", delete))
        self.assertEqual(len({kv.EventFilter(key="a"), kv.EventFilter(start="a", end="a\x00")}), 1)


class Clients(unittest.TestCase):
    def test_parts_without_a_counterpart_name_their_replacement(self) -> None:
        client = skein.Client()
        page = application.ApplicationClient(None, "x").ui
        for call, replacement in (
            (lambda: client.move_application("application_1_1", "fast"), "yarn application -appId application_1_1 -changeQueue fast"),
            (lambda: page.address, "each page has its own address"),
            (lambda: model.Security.from_default(), "each job gets its own certificate"),
        ):
            with self.assertRaises(NotImplementedError) as raised:
                call()
            self.assertIn(replacement, str(raised.exception))
            self.assertIn("docs/moving/skein.md", str(raised.exception))

    def test_clients_are_pickled_and_need_no_driver(self) -> None:
        with pickle.loads(pickle.dumps(skein.Client())) as client:
            self.assertIsInstance(client, skein.Client)
        self.assertIsInstance(skein.Client.from_global_driver(), skein.Client)
        with self.assertRaises(ValueError):
            skein.Client(keytab="/x")
        with self.assertRaises(ValueError) as raised:
            skein.ApplicationClient.from_current()
        self.assertEqual(str(raised.exception), "Not running inside a container")

    def test_rows_of_the_cluster_become_reports(self) -> None:
        report = core._report(
            {
                "id": "application_1_2", "name": "x", "state": "succeeded", "submitted": 1000,
                "application": {
                    "name": "x", "state": "finished", "final_status": "succeeded", "user": "ada", "queue": "default", "tags": ["t"],
                    "host": "n", "port": 1, "progress": 1.0, "tracking_url": "u", "diagnostics": "", "started": 1000, "finished": 3000,
                },
            }
        )
        self.assertEqual((report.state, report.final_status, report.tags), ("FINISHED", "SUCCEEDED", {"t"}))
        self.assertEqual(report.runtime, datetime.timedelta(seconds=2))
        size = {"memory_mib": 1024, "vcores": 4}
        node = core._node({"node": "n1:45", "state": "running", "all": size, "free": {"memory_mib": 24, "vcores": 1}, "labels": [""]})
        self.assertEqual((node.host, node.port, node.used_resources.memory, node.labels), ("n1", 45, 1000, set()))
        queue = core._queue({"queue": "root.a", "state": "RUNNING", "shares": {"": {"capacity": 0.5, "max_capacity": 1.0}}})
        self.assertEqual((queue.name, queue.capacity, queue.state), ("a", 50.0, "RUNNING"))

    def test_times_have_skeins_formats(self) -> None:
        self.assertEqual(core._time("2019-4-10 14:50", "x"), datetime.datetime(2019, 4, 10, 14, 50))
        self.assertEqual(core._time("14:50", "x").date(), datetime.date.today())
        for kind, value in ((ValueError, "yesterday"), (TypeError, 3)):
            with self.assertRaises(kind):
                core._time(value, "x")

    def test_reports_require_all_fields(self) -> None:
        with self.assertRaises(TypeError):
            reports.Queue(name="x")


class Master:
    """Fake connection to a master: answers from `pages`, in order for each path, and keeps the requests."""

    def __init__(self, **pages) -> None:
        self.requests = []
        self.pages = {"/v1/" + path: list(answers) for path, answers in pages.items()}

    def call(self, method, path, query=None, body=None, wait=0.0, repeat=True):
        self.requests.append((method, path, query))
        answers = self.pages[path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return types.SimpleNamespace(status=200, json=lambda: answer)

    def client(self) -> application.ApplicationClient:
        client = application.ApplicationClient(None, "x")
        client._master = self
        return client

    def count(self, path: str) -> int:
        return sum(1 for _, asked, _ in self.requests if asked == "/v1/" + path)


def entry(key: str, revision: int, owner=None):
    return {"key": key, "value": {"text": key}, "revision": revision, "owner": owner}


class Masters(unittest.TestCase):
    """Requests to the master of an application."""

    def test_the_driver_is_no_container_of_a_service(self) -> None:
        tasks = {
            "roles": [{"role": "driver"}, {"role": "worker"}],
            "tasks": [{"task": "driver:0", "state": "running"}, {"task": "worker:0", "state": "running"}],
            "stopped": [],
        }
        spec = {"roles": [{"name": "driver", "completion": "primary"}, {"name": "worker", "completion": "all"}]}
        client = Master(tasks=[tasks], spec=[spec]).client()
        for services in (None, ["worker"]):
            self.assertEqual([it.id for it in client.get_containers(services)], ["worker_0"])
        with self.assertRaises(ValueError):
            client.get_containers(["driver"])

    def test_an_added_container_is_that_of_the_response(self) -> None:
        master = Master(tasks=[{"task": "worker:12"}])
        added = master.client().add_container("worker")
        self.assertEqual((added.id, added.state, len(master.requests)), ("worker_12", "REQUESTED", 1))

    def test_a_watch_that_fell_behind_reads_all_pages(self) -> None:
        master = Master(
            kv=[
                {"entries": [], "revision": 5},
                {"entries": [entry("old", 4), entry("a", 7)], "more": True, "revision": 9},
                # A key that changed after the first page follows as a change.
                {"entries": [entry("b", 8), entry("c", 10)], "more": False, "revision": 10},
            ],
            watch=[{"state": "resync", "revision": 9}, {"state": "current", "revision": 10, "changes": [{"put": entry("c", 10)}]}],
        )
        changes = master.client().kv._changes(kv.EventFilter(), threading.Event())
        self.assertIsNone(next(changes))
        self.assertEqual([next(changes).key for _ in range(3)], ["a", "b", "c"])
        queries = [query for _, path, query in master.requests if path == "/v1/kv"]
        self.assertEqual([query.get("after_key") for query in queries], [None, None, "a"])
        afters = [query["after"] for _, path, query in master.requests if path == "/v1/watch"]
        self.assertEqual(afters, [5, 9])

    def test_a_watch_lists_the_tasks_for_unknown_owners_alone(self) -> None:
        put = [{"put": entry(key, at, owner)} for at, (key, owner) in enumerate([("a", "c1"), ("b", "c1"), ("c", "c2"), ("d", "gone")], 1)]
        first = {"tasks": [{"task": "worker:0", "container": "c1"}, {"task": "worker:1"}]}
        second = {"tasks": [{"task": "worker:1", "container": "c2"}]}
        master = Master(
            kv=[{"entries": [], "revision": 0}],
            watch=[{"state": "current", "revision": 8, "changes": put + put}],
            tasks=[first, second],
        )
        changes = master.client().kv._changes(kv.EventFilter(), threading.Event())
        self.assertIsNone(next(changes))
        owners = [next(changes).result.owner for _ in range(8)]
        self.assertEqual(owners, ["worker_0", "worker_0", "worker_1", "gone"] * 2)
        self.assertEqual(master.count("tasks"), 3)


class Utilities(unittest.TestCase):
    def test_libraries_on_top_of_skein_find_its_utilities(self) -> None:
        from ydl.compat.skein.utils import cached_property, format_table, humanize_timedelta

        class Counted:
            computed = 0

            @cached_property
            def value(self):
                """Text of the property."""
                self.computed += 1
                return self.computed

        counted = Counted()
        self.assertEqual((counted.value, counted.value), (1, 1))
        self.assertEqual(Counted.value.__doc__, "Text of the property.")
        self.assertEqual(format_table(["id", "state"], [("a_0", "RUNNING"), ("b", 1)]), "ID     STATE\na_0    RUNNING\nb      1")
        self.assertEqual(format_table(["id"], []), "ID")
        for seconds, text in ((5, "5s"), (65, "1m"), (7500, "2h 5m")):
            self.assertEqual(humanize_timedelta(datetime.timedelta(seconds=seconds)), text)


class Aliases(unittest.TestCase):
    def test_a_module_run_by_its_alias_knows_its_file(self) -> None:
        program = "import skein, runpy, sys\nsys.argv = ['x', '--version']\nrunpy.run_module('skein.cli', run_name='__main__', alter_sys=True)"
        for code in (program, "import importlib.util as u; assert u.find_spec('skein.recipes').origin.endswith('__init__.py')"):
            with tempfile.TemporaryDirectory() as directory:
                os.mkdir(os.path.join(directory, "skein"))
                with open(os.path.join(directory, "skein", "__init__.py"), "w", encoding="utf-8") as file:
                    file.write("from ydl.compat.alias import alias\nalias('skein', 'ydl.compat.skein')\n")
                with open(os.path.join(directory, "name.py"), "w", encoding="utf-8") as file:
                    file.write(code)
                root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
                env = {**os.environ, "PYTHONPATH": os.pathsep.join([directory, root])}
                done = subprocess.run([sys.executable, "-m", "name"], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
                self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_the_installed_module_runs_as_a_program_and_is_importable(self) -> None:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(root, "tf_yarn-shim"), root])}
        printed = [
            subprocess.run([sys.executable, *line], env=env, stdout=subprocess.PIPE, check=True).stdout
            for line in (["-m", "skein", "--version"], ["-c", "import skein.kv as kv; print(kv.__name__)"])
        ]
        self.assertEqual(printed, [b"skein 0.8.2 (ydl)\n", b"ydl.compat.skein.kv\n"])


class Services(unittest.TestCase):
    """Modules for libraries that need not be installed: doubles of these libraries."""

    def setUp(self) -> None:
        patched = mock.patch.dict(sys.modules)
        patched.start()
        self.addCleanup(patched.stop)

    def double(self, name: str, **members) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
        return module

    def test_web_services_authenticate_by_the_simple_scheme(self) -> None:
        class HTTPError(Exception):
            def __init__(self, status: int, reason: str) -> None:
                super().__init__(status)

        self.double("tornado")
        self.double("tornado.web", HTTPError=HTTPError)
        module = importlib.import_module("ydl.compat.skein.tornado")

        class Handler(module.SimpleAuthMixin):
            def __init__(self, query, cookies) -> None:
                self.query, self.cookies = query, cookies

            def get_query_argument(self, name, default):
                return self.query.get(name, default)

            def get_cookie(self, name):
                return self.cookies.get(name)

            def set_cookie(self, name, value):
                self.cookies[name] = value

        cookies = {}
        self.assertEqual(Handler({"user.name": "ada"}, cookies).get_current_user(), "ada")
        self.assertEqual(Handler({}, cookies).get_current_user(), "ada")
        with self.assertRaises(HTTPError):
            Handler({}, {}).prepare()
        for rejected in (module.KerberosAuthMixin, module.init_kerberos):
            with self.assertRaises(NotImplementedError) as raised:
                rejected()
            self.assertIn("a proxy in front of the service", str(raised.exception))

    def test_recipes_publish_their_address(self) -> None:
        stored = {}

        class Server:
            certfile, port, base_url, token = "", 8888, "/", "secret"

            def write_server_info_file(self) -> None:
                pass

        class Kernel:
            abs_connection_file = os.devnull

            def write_connection_file(self) -> None:
                pass

        self.double("notebook")
        self.double("notebook.notebookapp", aliases={}, NotebookApp=Server)
        self.double("ipykernel")
        self.double("ipykernel.kernelapp", kernel_aliases={}, IPKernelApp=Kernel)
        self.double("traitlets", Unicode=lambda default, **_: default)
        notebook = importlib.import_module("ydl.compat.skein.recipes.jupyter_notebook")
        kernel = importlib.import_module("ydl.compat.skein.recipes.ipython_kernel")
        client = mock.Mock()
        client.from_current.return_value.kv = stored
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"ip": "10.0.0.1", "shell_port": 1}')
            file.flush()
            with mock.patch.object(notebook, "ApplicationClient", client), mock.patch.object(kernel, "ApplicationClient", client):
                notebook.SkeinNotebookApp().write_server_info_file()
                app = kernel.SkeinIPKernelApp()
                app.abs_connection_file = file.name
                app.write_connection_file()
        info = json.loads(stored["jupyter.notebook.info"])
        self.assertEqual((info["protocol"], info["port"], info["token"]), ("http", 8888, "secret"))
        self.assertEqual(json.loads(stored["ipython.kernel.info"])["ip"], "10.0.0.1")


if __name__ == "__main__":
    unittest.main()
