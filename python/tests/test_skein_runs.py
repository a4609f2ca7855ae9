"""Programs of skein in jobs on this machine."""

import json
import os
import queue
import socket
import subprocess
import sys
import textwrap
import threading
import unittest

from ydl.compat import skein
from ydl.compat.cluster_pack.skein import skein_config_builder
from ydl.compat.skein import kv, model

from .harness import TEST_TIMEOUT_S, LocalJobTestCase, until

#: Echo server that publishes its address, as in skein's example.
SERVER = """
import os, socket, skein
listener = socket.create_server(("127.0.0.1", 0))
app = skein.ApplicationClient.from_current()
own = skein.properties.container_id
app.kv.put("address." + own, "{}:{}".format(*listener.getsockname()).encode(), owner=own)
print(os.environ.get("COLOR", "plain"), skein.properties.container_resources, skein.__file__, flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(connection.recv(100))
"""

#: Container that uses everything that a program may.
INSIDE = """
import json, queue, skein
from skein import kv
app = skein.ApplicationClient.from_current()
store = app.kv
store["a"] = b"1"
assert dict(store) == {"a": b"1"} and len(store) == 1 and "a" in store and store.get("x") is None
store.update({"b": b"2"}, c=b"\\xff")
assert store.setdefault("a", b"9") == b"1" and store.setdefault("d", b"4") == b"4"
assert list(store.get_prefix("a").items()) == [("a", b"1")] and list(store.get_range("b", "d")) == ["b", "c"]
assert store.list_keys() == ["a", "b", "c", "d"] and store.count(start="b") == 3 and store.pop("d") == b"4"
assert store.discard("d") is False and store.missing("d") and store.exists("a")
own = skein.properties.container_id
store.put("a", owner=own)
assert store.get("a", return_owner=True) == (b"1", own) and store.wait("a", return_owner=True).owner == own
done = store.transaction([kv.value("a") == b"1", kv.owner("a") == own], [kv.swap("a", b"5"), kv.get("b")], [kv.put("x", b"")])
assert done == (True, [b"1", b"2"]), done
done = store.transaction([kv.missing("a")], [], [kv.put("e", b"6"), kv.count()])
assert done == (False, [None, 4]), done
for wrong in (lambda: store.put("none", owner=own), lambda: store.put("a", owner="inside_7")):
    try: wrong()
    except ValueError: pass
    else: raise SystemExit("no ValueError")
with store.event_queue() as events:
    prefix = events.subscribe(prefix="e")
    events.subscribe(key="x", event_type="put")
    store["x"] = b"new"
    event = events.get(timeout=60)
    assert (event.key, event.result.value, event.event_type) == ("x", b"new", "PUT")
    del store["e"]
    event = events.get(timeout=60)
    assert (event.key, event.result, event.event_type, event.event_filter) == ("e", None, "DELETE", prefix)
    try: events.get(block=False)
    except queue.Empty: pass
assert store.pop_prefix("x") == {"x": b"new"} and store.discard_range(start="b", return_keys=True) == ["b", "c"]
page = app.ui.add_page("board", "http://host:1", link_name="Board")
assert page.address == "http://host:1/" and list(app.ui.get_pages()) == ["board"]
app.ui.remove_page("board")
app.set_progress(0.5)
spec = app.get_specification()
assert spec.name == "inside" and spec.services["inside"].script.startswith("echo begin"), spec.services["inside"].script
store.clear()
store["done"] = json.dumps([it.id for it in app.get_containers(["inside"])]).encode()
app.shutdown("FAILED", diagnostics="the data is stale")
"""


class SkeinTestCase(LocalJobTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client = skein.Client()
        self.apps = []

    def kill_all(self) -> None:
        for app in self.apps:
            report = self.client.application_report(app)
            if report.state == "RUNNING":
                self.client.kill_application(app)

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text).lstrip())
        return path

    def service(self, script: str, **more) -> skein.Service:
        return skein.Service(resources=skein.Resources("512 MiB", 1), script=script.replace("python3 ", sys.executable + " "), **more)

    def start(self, spec: skein.ApplicationSpec):
        app = self.client.submit_and_connect(spec)
        self.apps.append(app.id)
        return app

    def report_when(self, app, state: str):
        def reached():
            report = self.client.application_report(app.id)
            return report if report.final_status == state else None

        return until(reached)


class Echo(SkeinTestCase):
    def test_servers_are_found_scaled_and_shut_down(self) -> None:
        server = self.service("python3 server.py", files={"server.py": self.write("server.py", SERVER)})
        app = self.start(skein.ApplicationSpec(name="echo", services={"server": server}))
        first = app.kv.wait("address.server_0").decode()
        self.assertEqual(self.echo(first), b"hello")
        self.assertEqual([it.id for it in app.scale("server", 3)], ["server_1", "server_2"])
        added = app.add_container("server", env={"COLOR": "red"})
        self.assertEqual(added.id, "server_3")
        addresses = until(lambda: len(found := app.kv.get_prefix("address.")) == 4 and found)
        self.assertEqual({self.echo(address.decode()) for address in addresses.values()}, {b"hello"})
        containers = app.get_containers(["server"], states=["RUNNING"])
        self.assertEqual([it.id for it in containers], ["server_0", "server_1", "server_2", "server_3"])
        self.assertTrue(all(it.start_time for it in containers))
        # A container's keys are deleted with it.
        with app.kv.events(key="address.server_1", event_type="delete") as events:
            app.kill_container("server_1")
            self.assertEqual(events.get(timeout=TEST_TIMEOUT_S).key, "address.server_1")
        self.assertEqual([it.id for it in app.scale("server", delta=-2)], ["server_0", "server_2"])
        until(lambda: list(app.kv.get_prefix("address.")) == ["address.server_3"])
        killed = app.get_containers(states=["KILLED"])
        self.assertEqual([it.id for it in killed], ["server_0", "server_1", "server_2"])
        for wrong in (lambda: app.scale("client", 1), lambda: app.kill_container("server_1"), lambda: app.add_container("client")):
            with self.assertRaises(ValueError):
                wrong()
        named = [report.id for report in self.client.get_applications(name="echo")]
        self.assertEqual(named, [app.id])
        app.shutdown()
        report = self.report_when(app, "SUCCEEDED")
        self.assertEqual((report.state, report.name), ("FINISHED", "echo"))
        logs = self.client.application_logs(app.id)
        # Tasks use ydl's skein, and variables of an added container are its own.
        self.assertIn("plain Resources<memory=512, vcores=1>", logs["server_0"])
        self.assertIn("red", logs["server_3"])
        self.assertIn(os.path.join("compat", "skein"), logs["server_0"])
        with self.assertRaises(skein.ApplicationNotRunningError):
            self.client.connect(app.id)

    @staticmethod
    def echo(address: str) -> bytes:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"hello")
            return connection.recv(100)


class Inside(SkeinTestCase):
    def test_a_container_uses_the_whole_interface(self) -> None:
        program = self.write("inside.py", INSIDE)
        script = "echo begin\npython3 inside.py"
        app = self.start(skein.ApplicationSpec(name="inside", services={"inside": self.service(script, files={"inside.py": program})}))
        report = self.report_when(app, "FAILED")
        logs = "\n".join(self.client.application_logs(app.id).values())
        self.assertIn("the data is stale", report.diagnostics, logs)

    def test_an_installed_skein_is_replaced_in_containers(self) -> None:
        # A package in the environment, as pip installs it.
        site = os.path.join(self.directory, "site", "skein")
        os.makedirs(site)
        with open(os.path.join(site, "__init__.py"), "w", encoding="utf-8") as file:
            file.write("raise SystemExit('the original skein was imported')\n")
        script = "python3 -c 'import skein; print(skein.ApplicationClient.from_current().id)'"
        env = {"PYTHONPATH": os.path.dirname(site)}
        app = self.client.submit(skein.ApplicationSpec(services={"a": self.service(script, env=env)}))
        self.apps.append(app)
        until(lambda: self.client.application_report(app).final_status == "SUCCEEDED")
        self.assertEqual(self.client.application_logs(app)["a_0"], app)

    def test_a_service_may_begin_without_containers(self) -> None:
        spec = skein.ApplicationSpec(
            services={"worker": self.service("skein kv put current --key worker --value here; sleep 600", instances=0)},
            master=skein.Master(
                resources=skein.Resources("512 MiB", 1),
                script="skein container scale current -s worker -n 1 && skein kv get current --key worker --wait",
            ),
        )
        app = self.start(spec)
        self.report_when(app, "SUCCEEDED")
        self.assertEqual(self.client.application_logs(app.id)["driver_0"], "here")


class Packed(SkeinTestCase):
    def test_cluster_pack_builds_services_of_modules_and_functions(self) -> None:
        def greet(name):
            print("hello", name, sys.prefix)

        def show(path):
            with open(path, encoding="utf-8") as log:
                print("log:", log.read().strip())

        module = self.write("module.py", "import sys; print(*sys.argv[1:], sys.prefix)\n")
        for name, config, expected in (
            ("function", skein_config_builder.build_with_func(greet, ["you"], sys.prefix, process_logs=show), "log: hello you"),
            ("module", skein_config_builder.build("module", ["a b", 1], sys.prefix, [module]), "a b 1"),
        ):
            with self.subTest(name):
                service = self.service(config.script, files=config.files)
                app = self.client.submit(skein.ApplicationSpec(services={"service": service}))
                self.apps.append(app)
                ended = until(lambda: (it := self.client.application_report(app)).state == "FINISHED" and it)
                log = self.client.application_logs(app)["service_0"]
                self.assertEqual(ended.final_status, "SUCCEEDED", log)
                self.assertIn("{} {}".format(expected, sys.prefix), log)

    def test_an_application_has_one_environment(self) -> None:
        files = [{"pyenv": model.EnvironmentFile("/envs/" + name)} for name in ("one", "two")]
        services = {"a": self.service("true", files=files[0]), "b": self.service("true", files=files[1])}
        with self.assertRaisesRegex(ValueError, "has one environment, but its files name `/envs/one` and `/envs/two`"):
            self.client.submit(skein.ApplicationSpec(services=services))


class CommandLine(SkeinTestCase):
    def test_commands_of_skein_submit_show_and_end_an_application(self) -> None:
        file = self.write("spec.json", json.dumps({
            "name": "shown",
            "services": {"web": {"resources": {"memory": 128, "vcores": 1}, "script": "sleep 600"}},
        }))
        app = self.skein("application", "submit", file).strip()
        self.apps.append(app)
        until(lambda: "web_0  RUNNING" in " ".join(self.skein("container", "ls", app).split("  ")).replace("   ", "  ")
              or "RUNNING" in self.skein("container", "ls", app))
        self.skein("kv", "put", app, "--key", "a", "--value", "b")
        self.assertEqual(self.skein("kv", "get", app, "--key", "a"), "b\n")
        self.assertEqual(self.skein("kv", "ls", app), "a\n")
        self.assertIn("shown", self.skein("application", "ls"))
        self.skein("application", "shutdown", app)
        until(lambda: "SUCCEEDED" in self.skein("application", "status", app))
        failed = subprocess.run([sys.executable, "-m", "ydl.compat.skein", "kv", "get", app, "--key", "a"], stderr=subprocess.PIPE)
        self.assertEqual(failed.returncode, 1)
        self.assertTrue(failed.stderr.startswith(b"Error: "), failed.stderr)

    def skein(self, *arguments: str) -> str:
        done = subprocess.run([sys.executable, "-m", "ydl.compat.skein", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()


class Events(SkeinTestCase):
    def test_an_iterator_of_events_ends_with_the_application(self) -> None:
        app = self.start(skein.ApplicationSpec(services={"a": self.service("sleep 600")}))
        events = app.kv.events()
        seen: "queue.Queue[object]" = queue.Queue()

        def read() -> None:
            try:
                for event in events:
                    seen.put(event.key)
            except skein.ConnectionError as error:
                seen.put(type(error))

        threading.Thread(target=read, daemon=True).start()
        app.kv.put("k", b"v")
        self.assertEqual(seen.get(timeout=TEST_TIMEOUT_S), "k")
        self.assertTrue(kv.is_condition(kv.value("k") == b"v"))
        app.shutdown("KILLED")
        self.assertEqual(seen.get(timeout=TEST_TIMEOUT_S), skein.ConnectionError)


if __name__ == "__main__":
    unittest.main()
