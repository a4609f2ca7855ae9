"""cluster-pack's interface: requirements, archives, and the keys of jobs."""

import gc
import getpass
import http.server
import importlib
import inspect
import io
import os
import re
import sys
import tempfile
import threading
import types
import unittest
import weakref
import zipfile
from unittest import mock

import ydl
from ydl.compat import cluster_pack
from ydl.compat.cluster_pack import filesystem, packaging, uploader, yarn_launcher
from ydl.compat.tf_yarn import plan

from . import user_module


class Archives(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = folder.name
        patch = mock.patch.dict(os.environ, XDG_CACHE_HOME=os.path.join(self.directory, "cache"))
        patch.start()
        self.addCleanup(patch.stop)

    def write(self, name, text=""):
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_the_usage_of_an_archive_depends_on_its_extension(self):
        usage = packaging.get_pyenv_usage_from_archive
        self.assertEqual(usage("hdfs:///e/x.pex"), ("hdfs:///e/x.pex", "./x.pex", "x.pex", False))
        self.assertEqual(usage("x.pex.zip")[1:], ("pyenv/__main__.py", "pyenv", True))
        self.assertEqual(usage("x.zip")[1:], ("pyenv/bin/python", "pyenv", True))
        with self.assertRaises(ValueError):
            usage("x.exe")
        self.assertIs(packaging.detect_packer_from_file("x.pex"), cluster_pack.PEX_PACKER)
        self.assertIs(packaging.detect_packer_from_file("x.tar.gz"), cluster_pack.CONDA_PACKER)

    def test_zip_path_excludes_bytecode(self):
        for name in ("package/a.py", "package/inner/b.py", "package/a.pyc", "package/__pycache__/a.pyc"):
            self.write(name)
        for named, expected in ((True, ["package/a.py", "package/inner/b.py"]), (False, ["a.py", "inner/b.py"])):
            path = cluster_pack.zip_path(os.path.join(self.directory, "package"), named, self.directory)
            with zipfile.ZipFile(path) as archive:
                self.assertEqual(sorted(archive.namelist()), expected)

    def test_an_existing_archive_is_used_unchanged(self):
        path = self.write("ready.pex")
        self.assertEqual(cluster_pack.upload_zip(path), path)
        self.assertEqual(cluster_pack.upload_zip("hdfs:///envs/e.tar.gz"), "hdfs:///envs/e.tar.gz")
        with self.assertRaises(FileNotFoundError):
            cluster_pack.upload_zip(os.path.join(self.directory, "none.pex"))

    def test_an_archive_at_a_url_is_downloaded_once(self):
        requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                requests.append(self.path)
                self.send_response(200)
                self.send_header("content-length", "3")
                self.end_headers()
                self.wfile.write(b"pex")

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(server.shutdown)
        with mock.patch.dict(os.environ, no_proxy="127.0.0.1"):
            url = "http://127.0.0.1:{}/x.pex".format(server.server_port)
            path = cluster_pack.upload_zip(url)
            self.assertEqual(cluster_pack.upload_zip(url), path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"pex")
        self.assertEqual(requests, ["/x.pex"])

    def test_changed_packages_are_written_to_a_requirements_file(self):
        installed = {"Alpha_Beta": "1.0", "gamma": "2.0", "pip": "24", "gamma-more": "3.0"}
        # ydl's own packages are in no index and are shipped with every job.
        installed.update({"ydl-yarn": "0.1.0", "ydl_tf_yarn": "0.1.0"})
        requirements = uploader.requirements
        self.assertEqual(requirements(installed, {}, ["alpha-beta"], None, [], []), "gamma==2.0\ngamma-more==3.0\n")
        # Names are compared as a whole.
        text = requirements(installed, {"gamma": "2.5", "delta": ">=1,<2"}, [], ["Gamma", "alpha.beta"], ["https://i/simple"], ["/src/p"])
        self.assertEqual(
            text.splitlines(),
            ["--extra-index-url https://i/simple", "-e /src/p", "Alpha_Beta==1.0", "delta>=1,<2", "gamma==2.5"],
        )

    def test_indexes_and_links_are_written_as_pip_knows_them(self):
        text = uploader.requirements({"a": "1"}, {}, [], None, ["https://i/simple", "wheels"], [], ["https://l/index.html", "more"])
        local = os.getcwd()
        expected = [
            "--extra-index-url https://i/simple",
            "--extra-index-url " + os.path.join(local, "wheels"),
            "--find-links https://l/index.html",
            "--find-links " + os.path.join(local, "more"),
            "a==1",
        ]
        self.assertEqual(text.splitlines(), expected)

    def test_packing_shows_progress_while_it_runs(self):
        seen = os.path.join(self.directory, "seen")
        # Ends only after its note was shown.
        script = "#!/bin/sh\necho 'note: building' >&2\nwhile [ ! -e {} ]; do sleep 0.05; done\necho '{{}}'\n".format(seen)
        binary = self.write("ydl", script)
        os.chmod(binary, 0o755)
        shown = []

        def show(note):
            shown.append(note)
            self.write("seen")

        with mock.patch.dict(os.environ, YDL_BINARY=binary), mock.patch.object(uploader, "_show", show):
            uploader._pack("environment")
        self.assertEqual(shown, ["note: building"])

    def test_an_error_is_raised_and_not_shown_as_progress(self):
        binary = self.write("ydl", "#!/bin/sh\nprintf 'note: a\\nerror: no space\\n\\nhint: free some\\n' >&2\nexit 2\n")
        os.chmod(binary, 0o755)
        shown = []
        with mock.patch.dict(os.environ, YDL_BINARY=binary), mock.patch.object(uploader, "_show", shown.append):
            with self.assertRaises(ydl.Error) as raised:
                uploader._pack("environment")
        self.assertEqual((shown, raised.exception.message, raised.exception.hint), (["note: a"], "no space", "free some"))

    def test_the_environment_is_packed_and_gets_a_unique_name(self):
        with mock.patch.object(ydl, "run_binary", return_value=[{"layers": 1}]) as packed:
            path, name = cluster_pack.upload_env()
        packed.assert_called_once_with(["pack", path], on_note=uploader._show)
        self.assertEqual(path, os.environ.get("PEX") or sys.prefix)
        self.assertTrue(re.match(r"^.+_[0-9a-f]{7}$", name), name)

    def test_equal_requirements_have_the_same_cached_file(self):
        with mock.patch.object(packaging, "get_non_editable_requirements", return_value={"a": "1", "b": "2"}):
            with mock.patch.object(ydl, "run_binary", return_value=[]):
                first, _ = cluster_pack.upload_env(ignored_packages=["b"])
                again, _ = cluster_pack.upload_env(ignored_packages=["b"])
                other, _ = cluster_pack.upload_env(additional_packages={"c": "3"})
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        with open(first) as file:
            self.assertEqual(file.read(), "a==1\n")

    def test_a_requirements_file_is_readable_by_the_owner_only(self):
        with mock.patch.object(packaging, "get_non_editable_requirements", return_value={"a": "1"}):
            with mock.patch.object(ydl, "run_binary", return_value=[]):
                path, _ = cluster_pack.upload_env(additional_indexes=["https://me:secret@index/simple"])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["requirements.txt"])

    def test_an_incomplete_download_is_an_error(self):
        truncated = io.BytesIO(b"pex")
        truncated.headers = {"content-length": "1000"}
        url = "http://me:secret@127.0.0.1/x.pex"
        with mock.patch.object(uploader.urllib.request, "urlopen", return_value=truncated):
            with self.assertRaises(OSError) as raised:
                cluster_pack.upload_zip(url)
        self.assertIn("1000 bytes, but 3 were received", str(raised.exception))
        self.assertNotIn("secret", str(raised.exception))
        complete = io.BytesIO(b"pex")
        complete.headers = {"content-length": "3"}
        with mock.patch.object(uploader.urllib.request, "urlopen", return_value=complete):
            path = cluster_pack.upload_zip(url)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["x.pex"])
        with mock.patch.object(uploader, "MAX_DOWNLOAD_BYTES", 2), self.assertRaises(OSError):
            list(uploader._blocks(io.BytesIO(b"pex"), url))

    def test_every_name_of_cluster_pack_exists(self):
        names = (
            "settings filesystem yarn_launcher upload_env upload_zip zip_path PEX_PACKER CONDA_PACKER Packer get_default_fs "
            "get_editable_requirements get_non_editable_requirements detect_packer_from_file get_pyenv_usage_from_archive "
            "PythonEnvDescription LayoutOptimization set_layout_optimization get_layout_optimization is_uv_available "
            "set_venv_optimization_level get_venv_optimization_level"
        )
        self.assertEqual([name for name in names.split() if not hasattr(cluster_pack, name)], [])
        launcher = importlib.import_module("ydl.compat.cluster_pack.skein.skein_launcher")
        for name in ("submit", "submit_func", "get_application_logs", "wait_for_finished", "upload_logs_to_hdfs"):
            self.assertIs(getattr(launcher, name), getattr(yarn_launcher, name))

    def test_pex_settings_are_stored(self):
        cluster_pack.set_layout_optimization("FAST_MID_BIG")
        cluster_pack.set_venv_optimization_level(2)
        self.addCleanup(cluster_pack.settings._settings.clear)
        self.assertIs(cluster_pack.get_layout_optimization(), cluster_pack.LayoutOptimization.FAST_MID_BIG)
        self.assertEqual(cluster_pack.get_venv_optimization_level(), 2)
        self.assertEqual(cluster_pack.get_layout_optimization().get_params()[:2], ("loose", True))
        with self.assertRaises(ValueError):
            cluster_pack.set_layout_optimization("FASTEST")

    def test_the_package_index_is_in_every_requirements_file(self):
        self.addCleanup(cluster_pack.settings._settings.clear)

        def indexes():
            with mock.patch.object(packaging, "get_non_editable_requirements", return_value={"a": "1"}):
                with mock.patch.object(ydl, "run_binary", return_value=[]):
                    path, _ = cluster_pack.upload_env(only_packages=["a"])
            with open(path) as file:
                return [line.split()[-1] for line in file if line.startswith("--extra-index-url")]

        with mock.patch.dict(os.environ, C_PACK_PYPI_URL="https://variable/simple"):
            self.assertEqual(indexes(), ["https://variable/simple"])
            cluster_pack.settings.set_pypi_index("https://program/simple")
            self.assertEqual(indexes(), ["https://program/simple"])
            self.assertEqual(cluster_pack.settings.get_pypi_index(), "https://program/simple")
            cluster_pack.settings.set_pypi_index(None)
            self.assertEqual((indexes(), cluster_pack.settings.get_pypi_index()), ([], None))

    def test_local_files_need_no_fsspec(self):
        files = filesystem.LocalFileSystem()
        path = self.write("folder/a.txt", "abc")
        files.put(os.path.dirname(path), os.path.join(self.directory, "copy"))
        copy = os.path.join(self.directory, "copy", "a.txt")
        self.assertEqual(files.glob(os.path.join(self.directory, "copy", "*")), [copy])
        self.assertEqual((files.info(copy)["size"], files.isdir(copy), files.exists(copy)), (3, False, True))
        yarn_launcher.upload_logs_to_hdfs(os.path.join(self.directory, "logs", "b.txt"), copy)
        with open(os.path.join(self.directory, "logs", "b.txt")) as file:
            self.assertEqual(file.read(), "abc")

    def fsspec(self, **attributes):
        """Returns a fake fsspec that records the file systems it is asked for."""
        asked = []

        def file_system(protocol, **options):
            asked.append((protocol, options))
            if "error" in attributes:
                raise attributes["error"]
            return type("FileSystem", (), {"_strip_protocol": lambda _, uri: uri.partition("://")[2]})()

        module = types.ModuleType("fsspec")
        module.filesystem = file_system
        return asked, mock.patch.dict(sys.modules, fsspec=module)

    def test_file_systems_of_hadoop_are_those_of_libhdfs(self):
        asked, fake = self.fsspec()
        self.addCleanup(filesystem._kept.clear)
        with fake, mock.patch.dict(os.environ, CLASSPATH="own.jar"):
            for uri, host, port, path in (
                ("hdfs://nn:8020/a/b", "hdfs://nn", 8020, "/a/b"),
                ("viewfs://root/user/me", "viewfs://root", 0, "/user/me"),
                ("hdfs:///a", "default", 0, "/a"),
            ):
                files, found = filesystem.resolve_filesystem_and_path(uri)
                self.assertEqual((asked[-1], found), (("hdfs", {"host": host, "port": port}), path))
                # Its name in older versions.
                self.assertIs(files.base_fs, files)
            self.assertEqual(filesystem.resolve_filesystem_and_path("s3://bucket/key")[1], "bucket/key")
            self.assertEqual(filesystem.resolve_filesystem_and_path("file:///a")[1], "/a")

    def test_a_file_system_of_libhdfs_lives_as_long_as_the_process(self):
        _, fake = self.fsspec()
        self.addCleanup(filesystem._kept.clear)
        with fake, mock.patch.dict(os.environ, CLASSPATH="own.jar"):
            alive = weakref.ref(filesystem.resolve_filesystem_and_path("hdfs://nn:8020/a")[0])
            gone = weakref.ref(filesystem.resolve_filesystem_and_path("s3://bucket/a")[0])
            gc.collect()
        # A forked worker of a data loader would hang in its destructor.
        self.assertIsNotNone(alive())
        self.assertIsNone(gone())

    def test_a_missing_package_is_named_with_its_installation(self):
        with mock.patch.dict(sys.modules, fsspec=None), self.assertRaises(ImportError) as raised:
            filesystem.resolve_filesystem_and_path("hdfs://nn/a")
        self.assertIn("`hdfs://nn/a` needs `fsspec`", str(raised.exception))
        self.assertIn("hint: `pip install fsspec pyarrow`", str(raised.exception))
        for error, kind, hint in (
            (ImportError("no pyarrow"), ImportError, "hint: `pip install fsspec pyarrow`"),
            (OSError("Unable to load libhdfs"), OSError, "hint: libhdfs needs `JAVA_HOME`"),
        ):
            _, fake = self.fsspec(error=error)
            with fake, mock.patch.dict(os.environ, CLASSPATH="own.jar"), self.assertRaises(kind) as raised:
                filesystem.resolve_filesystem_and_path("viewfs://root/a")
            self.assertIn(hint, str(raised.exception))

    def test_an_ignored_package_path_is_a_warning(self):
        named = "hdfs:///user/me/envs/e.pex"
        self.addCleanup(uploader._redirected.clear)
        with mock.patch.object(ydl, "run_binary", return_value=[]), self.assertLogs(uploader.logger, "WARNING") as logs:
            path, _ = cluster_pack.upload_env(named)
        self.assertIn("`{}` is not written".format(named), logs.output[-1])
        # The requested path resolves to the packed environment.
        self.assertEqual(plan.environment_of(named, {}), plan.environment_of(path, {}))
        self.assertNotEqual(plan.environment_of(named, {}).source, "system")

    def test_a_package_path_of_another_packer_is_rejected(self):
        for path, packer in (("e.tar.gz", cluster_pack.PEX_PACKER), ("e.tar.gz", cluster_pack.CONDA_PACKER)):
            with self.assertRaises(ValueError) as raised:
                cluster_pack.upload_env(path, packer)
            self.assertIn("`e.tar.gz` has the wrong extension", str(raised.exception))

    def test_the_name_of_an_environment_has_a_hash_of_its_directory(self):
        with mock.patch.dict(os.environ, ENVIRONMENT="/path/to/venv"):
            self.assertEqual(packaging.get_env_name("ENVIRONMENT"), "venv_ecff6ba")
            del os.environ["ENVIRONMENT"]
            self.assertEqual(packaging.get_env_name("ENVIRONMENT"), "default")

    def test_editable_packages_are_found_by_their_directories(self):
        self.write("project/own/__init__.py")
        self.write("project/tests/__init__.py")
        self.write("other/src/further/__init__.py")
        rows = [{"name": "p", "editable_project_location": os.path.join(self.directory, name)} for name in ("project", "other")]
        with mock.patch.object(packaging, "_pip_list", return_value=rows):
            found = cluster_pack.get_editable_requirements()
        expected = {"own": os.path.join(self.directory, "project/own"), "further": os.path.join(self.directory, "other/src/further")}
        self.assertEqual(found, expected)

    def test_the_default_file_system_comes_from_the_configuration(self):
        text = "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property></configuration>"
        folder = os.path.dirname(self.write("conf/core-site.xml", text))
        with mock.patch.dict(os.environ, HADOOP_CONF_DIR=folder):
            self.assertEqual(cluster_pack.get_default_fs(), "hdfs://nn:8020")
        with mock.patch.dict(os.environ):
            for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
                os.environ.pop(name, None)
            self.assertEqual(cluster_pack.get_default_fs(), "file:///")

    def test_spark_is_rejected_with_a_hint(self):
        with self.assertRaises(ImportError) as raised:
            import ydl.compat.cluster_pack.spark  # noqa: F401
        self.assertIn("install the distribution `cluster-pack` itself", str(raised.exception))


class Launcher(unittest.TestCase):
    """Jobs of `submit` and `submit_func`."""

    def submitted_job(self, function, *args, **options):
        with mock.patch.object(ydl.Job, "submit", autospec=True) as submit:
            submit.return_value.id = "job"
            self.assertEqual(function(*args, package_path=sys.executable, **options), "job")
        return submit.call_args[0][0]

    def test_positional_arguments_have_the_order_of_cluster_pack(self):
        named = list(inspect.signature(yarn_launcher.submit).parameters)
        expected = (
            "skein_client module_name args name num_cores memory package_path hadoop_file_systems queue env_vars "
            "additional_files node_label num_containers user acquire_map_reduce_delegation_token pre_script_hook max_attempts "
            "max_restarts process_logs allow_large_pex"
        ).split()
        self.assertEqual(named[: len(expected)], expected)
        self.assertEqual(list(inspect.signature(yarn_launcher.submit_func).parameters)[3:], named[3:])

    def test_submitting_as_another_user_is_rejected(self):
        with self.assertRaises(ValueError) as raised:
            self.submitted_job(yarn_launcher.submit, None, "module", user="mallory")
        self.assertIn("HADOOP_PROXY_USER", str(raised.exception))
        self.submitted_job(yarn_launcher.submit, None, "module", user=getpass.getuser())

    def test_modules_and_functions_have_the_same_options(self):
        options = {"pre_script_hook": "export A=1", "max_attempts": 2, "max_restarts": 3, "env_vars": {"B": "2"}}
        module = self.submitted_job(yarn_launcher.submit, None, "module", ["--x"], **options)
        function = self.submitted_job(yarn_launcher.submit_func, None, user_module.double, [4], **options)
        for job in (module, function):
            keys = job.keys()
            self.assertEqual((keys["restart"], keys["master"], keys["env"]), ({"limit": 3}, {"attempts": 2}, {"B": "2"}))
        words = module.keys()["roles"]["worker"]["run"]
        self.assertEqual(words[:2] + words[-3:], ["bash", "-c", "-m", "module", "--x"])
        packed = function._bundle.create(function.keys(), {"cluster": "local"})
        self.addCleanup(function._bundle.remove)
        words = packed["roles"]["worker"]["run"]
        self.assertEqual(words[:3] + words[-1:], ["bash", "-c", 'export A=1\nexec "$@"', "ydl-function"])

    def test_wait_for_finished_returns_whether_the_job_succeeded(self):
        outcome = ydl.Outcome("failed", "reason")
        failed = ydl.JobFailed(ydl.Run("job"), outcome)
        with mock.patch.object(ydl.Run, "wait", side_effect=failed):
            self.assertFalse(yarn_launcher.wait_for_finished(None, "job"))
        with mock.patch.object(ydl.Run, "wait", return_value=ydl.Outcome("succeeded", "")):
            self.assertTrue(yarn_launcher.wait_for_finished(None, "job"))


if __name__ == "__main__":
    unittest.main()
