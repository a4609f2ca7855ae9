"""tf-yarn's interface without a cluster: arguments, topologies and the resulting job."""

import contextlib
import importlib
import inspect
import io
import json
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import ydl
from ydl import functions
from ydl.compat import tf_yarn
from ydl.compat.alias import alias
from ydl.compat.cluster_pack import packaging
from ydl.compat.tf_yarn import bundle, plan
from ydl.compat.tf_yarn import client as client_module
from ydl.compat.tf_yarn._task_commons import catchtime, cluster_instances
from ydl.compat.tf_yarn.bin import check_hadoop_env
from ydl.compat.tf_yarn.client import ContainerLogStatus, get_safe_experiment_fn
from ydl.compat.tf_yarn.tensorboard import url_event_name
from ydl.compat.tf_yarn.topologies import (
    ContainerKey,
    ContainerTask,
    NodeLabel,
    TaskSpec,
    memory_mib,
    ps_strategy_topology,
    single_server_topology,
)

from . import user_module


def call(**arguments):
    arguments.setdefault("task_specs", {"chief": TaskSpec(512, 1)})
    arguments.setdefault("framework", "tensorflow")
    arguments.setdefault("module", "tf_yarn.tensorflow.tasks._independent_workers_task")
    return plan.Call(**arguments)


def keys_of(**arguments):
    return plan.job_keys(plan.validated(call(**arguments)), plan.Environment("system", ("python3",)))


class Topologies(unittest.TestCase):
    def test_sizes_have_units_or_are_in_mib(self):
        for memory, mib in (("2 GiB", 2048), (512, 512), ("1.5GiB", 1536), ("1 GB", 954), ("700 MiB", 700), ("64", 64)):
            self.assertEqual(memory_mib(memory), mib, memory)
        for invalid in ("much", "", "-1 GiB", 0, True):
            with self.assertRaises(ValueError):
                memory_mib(invalid)

    def test_the_resources_of_a_task_can_be_changed(self):
        spec = TaskSpec("1 GiB", 2)
        spec.memory, spec.vcores = "2 GiB", 4
        self.assertEqual((spec.memory, spec.vcores), (2048, 4))

    def test_the_older_signature_has_the_label_in_the_fourth_place(self):
        spec = TaskSpec("1 GiB", 2, 1, NodeLabel.GPU)
        self.assertEqual((spec.label, spec.nb_proc_per_worker), (NodeLabel.GPU, 1))
        for spec in (
            TaskSpec("1 GiB", 1, 1, NodeLabel.GPU, 60, "dir", "--x"),
            TaskSpec("1 GiB", 1, 1, NodeLabel.GPU, 60, "dir", tb_extra_args="--x"),
            TaskSpec("1 GiB", 1, 1, NodeLabel.GPU, 60, tb_model_dir="dir", tb_extra_args="--x"),
            TaskSpec("1 GiB", 1, 1, 1, NodeLabel.GPU, 60, "dir", "--x"),
            TaskSpec("1 GiB", 1, label="gpu", tb_termination_timeout_seconds=60, tb_model_dir="dir", tb_extra_args="--x"),
        ):
            options = (spec.label, spec.tb_termination_timeout_seconds, spec.tb_model_dir, spec.tb_extra_args)
            self.assertEqual(options, (NodeLabel.GPU, 60, "dir", "--x"))
        with self.assertRaises(TypeError):
            TaskSpec("1 GiB", 1, 1, 1, NodeLabel.CPU, "dir")

    def test_predefined_topologies_have_the_expected_tasks(self):
        self.assertEqual(set(single_server_topology()), {"chief", "evaluator", "tensorboard"})
        many = ps_strategy_topology(nb_workers=3, nb_ps=2)
        self.assertEqual(many["worker"].instances + many["ps"].instances, 5)

    def test_invalid_sizes_and_topologies_are_rejected(self):
        for topology in (
            lambda: single_server_topology(memory=48 * 1024 + 1),
            lambda: single_server_topology(vcores=49),
            lambda: ps_strategy_topology(memory=48 * 1024 + 1),
            lambda: ps_strategy_topology(vcores=49),
            lambda: ps_strategy_topology(nb_ps=0),
        ):
            with self.assertRaises(ValueError):
                topology()

    def test_evaluator_and_tensorboard_are_not_part_of_the_cluster(self):
        for roles, expected in (
            ([("chief", 1, 1), ("evaluator", 1, 1)], [("chief", 1, 1)]),
            ([("evaluator", 1, 1)], []),
            ([("chief", 1, 1), ("worker", 2, 3), ("tensorboard", 1, 1)], [("chief", 1, 1), ("worker", 2, 3)]),
        ):
            rows = [{"role": role, "instances": number, "processes": each} for role, number, each in roles]
            with mock.patch.dict(os.environ, YDL_CLUSTER=json.dumps({"round": 1, "roles": rows})):
                self.assertEqual(cluster_instances(), expected)

    def test_keys_are_written_and_read(self):
        key = ContainerKey("worker", 3)
        self.assertEqual(ContainerKey.from_kv_str(key.to_kv_str()), key)
        self.assertEqual(ContainerTask("worker", 3, 2).to_kv_str(), "worker:3:2")
        self.assertEqual(ContainerTask("worker", 3, 2).to_container_key(), key)


class Plans(unittest.TestCase):
    def test_invalid_arguments_are_rejected_before_submission(self):
        for invalid in (
            {"nb_retries": -1},
            {"task_specs": {}},
            {"task_specs": {"unknown": TaskSpec(512, 1)}},
            {"task_specs": {"chief": 3}},
            {"task_specs": {"chief": TaskSpec(512, 1, instances=0)}},
        ):
            with self.assertRaises(ValueError):
                keys_of(**invalid)

    def test_roles_are_in_the_order_of_ranks_with_the_completion_rules_of_tf_yarn(self):
        one = TaskSpec(512, 1)
        names = ("tensorboard", "evaluator", "ps", "worker", "chief")
        roles = keys_of(task_specs={name: one for name in names})["roles"]
        ends = [(name, role["completion"]) for name, role in roles.items()]
        expected = [("chief", "all"), ("worker", "all"), ("ps", "service"), ("evaluator", "follows"), ("tensorboard", "follows")]
        self.assertEqual(ends, expected)
        alone = keys_of(task_specs={"evaluator": one})["roles"]
        self.assertEqual(alone["evaluator"]["completion"], "all")

    def test_the_custom_module_runs_in_every_task_but_tensorboard(self):
        one = TaskSpec(512, 1)
        roles = keys_of(
            task_specs={"chief": one, "tensorboard": one}, module="tf_yarn.tasks.gloo_allred_task"
        )  # fmt: skip
        self.assertEqual(roles["framework"], "horovod")
        older = keys_of(task_specs={"chief": one}, module="tf_yarn.tasks._gloo_allred_task")
        self.assertEqual(older["framework"], "horovod")
        self.assertEqual(roles["roles"]["chief"]["run"][-1], "tf_yarn.tasks.gloo_allred_task")
        self.assertTrue(roles["roles"]["tensorboard"]["run"][-1].endswith("_tensorboard_task"))

    def test_a_label_sets_node_label_and_queue(self):
        specs = {"chief": TaskSpec(512, 1, label=NodeLabel.GPU), "evaluator": TaskSpec(512, 1)}
        keys = keys_of(task_specs=specs, queue="ml-gpu")
        self.assertEqual(keys["queue"], "ml-gpu")
        self.assertEqual(keys["roles"]["chief"]["node_label"], "gpu")
        self.assertNotIn("node_label", keys["roles"]["evaluator"])

    def test_variables_of_the_caller_are_kept(self):
        env = {"LIBHDFS_OPTS": "-Xmx1g", "HADOOP_CONF_DIR": "/etc/hadoop/conf.all"}
        original = dict(env)
        first, second = keys_of(env=env)["env"], keys_of(env=env)["env"]
        self.assertEqual(env, original)
        self.assertEqual(first, second)
        self.assertEqual(first["LIBHDFS_OPTS"], "-Xms64m -Xmx512m -Xmx1g")
        self.assertEqual(first["HADOOP_CONF_DIR"], "/etc/hadoop/conf.all")
        self.assertNotIn("NCCL_DEBUG", first)
        for env, expected in (({}, "INFO"), ({"NCCL_DEBUG": "WARN"}, "WARN")):
            self.assertEqual(keys_of(env=env, framework="pytorch")["env"]["NCCL_DEBUG"], expected)

    def test_a_hook_runs_before_the_program_in_one_shell(self):
        run = keys_of(pre_script_hook="export A=1")["roles"]["chief"]["run"]
        self.assertEqual(run[:2], ["bash", "-c"])
        self.assertTrue(run[2].startswith("set -x\nexport A=1\nexec python3 -m "))

    def test_cuda_is_fetched_into_the_library_path(self):
        hook = plan.cuda_hook("echo x", "hdfs://a/cuda.tar.gz", {"LD_LIBRARY_PATH": "cuda"})
        self.assertEqual(
            hook, "hdfs dfs -get hdfs://a/cuda.tar.gz;          mkdir cuda; tar -xf cuda.tar.gz -C ./cuda;echo x"
        )
        with self.assertLogs(plan.logger, logging.WARNING):
            self.assertEqual(plan.cuda_hook(None, "hdfs://a/cuda.tar.gz", {}), "")

    def test_acls_are_translated(self):
        acls = tf_yarn.ACLs(enable=True, view_users=["a", "b"], view_groups=["g"], modify_users=["*"])
        self.assertEqual(keys_of(acls=acls)["acls"], {"view": "a,b g", "modify": "*"})
        self.assertNotIn("acls", keys_of())
        all_users = tf_yarn.ACLs(enable=True, ui_users=["*"], view_users=["*"])
        self.assertEqual(keys_of(acls=all_users)["acls"], {"view": "*"})

    def test_file_systems_retries_and_names_are_passed_on(self):
        keys = keys_of(file_systems=["hdfs://preprod"], nb_retries=2, name="my job!")
        self.assertEqual(keys["file_systems"], ["hdfs://preprod"])
        # A process with tokens and no ticket cannot get tokens of other file systems.
        with mock.patch.dict(os.environ, HADOOP_TOKEN_FILE_LOCATION="/tokens"):
            self.assertNotIn("file_systems", keys_of(file_systems=["hdfs://preprod"]))
        self.assertEqual(keys["restart"], {"limit": 2, "scope": "job"})
        self.assertEqual(keys["name"], "my-job")

    def test_the_kind_of_an_environment_is_detected(self):
        specs = {"chief": TaskSpec(512, 1)}
        for path, source, python in (
            (sys.executable, "system", (os.path.abspath(sys.executable),)),
            ("hdfs:///envs/e.tar.gz", "hdfs:///envs/e.tar.gz", ("python",)),
            ("my.pex", os.path.abspath("my.pex"), ("python",)),
            ("hdfs:///e/my.pex", "system", ("python3", "my.pex")),
            ("hdfs:///e/my.pex.zip", "system", ("python3", "pyenv")),
        ):
            self.assertEqual(plan.environment_of(path, specs)[:2], (source, python))
        self.assertEqual(plan.environment_of("hdfs:///e/my.pex", specs).files, {"my.pex": "hdfs:///e/my.pex"})
        by_label = {NodeLabel.CPU: "hdfs:///a.zip", NodeLabel.GPU: "hdfs:///b.zip"}
        self.assertEqual(plan.environment_of(by_label, specs).source, "hdfs:///a.zip")
        with self.assertRaises(ValueError):
            plan.environment_of(by_label, {**specs, "worker": TaskSpec(512, 1, label=NodeLabel.GPU)})
        with self.assertRaises(ValueError):
            plan.environment_of({NodeLabel.GPU: "hdfs:///b.zip"}, specs)

    def test_tensorboard_gets_directory_and_termination_timeout(self):
        board = TaskSpec(512, 1, tb_termination_timeout_seconds=4000, tb_model_dir="hdfs:///m", tb_extra_args="--a 1")
        keys = keys_of(task_specs={"chief": TaskSpec(512, 1), "tensorboard": board})
        env = {"TB_TERMINATION_TIMEOUT_SECONDS": "4000", "TB_MODEL_DIR": "hdfs:///m", "TB_EXTRA_ARGS": "--a 1"}
        self.assertEqual(keys["roles"]["tensorboard"]["env"], env)
        self.assertEqual(keys["timeouts"], {"follow": "4300s"})


class Calls(unittest.TestCase):
    def arguments_of(self, function, *args, **options):
        with mock.patch.object(client_module, "run") as run:
            function(*args, **options)
        (experiment, call), options = run.call_args
        return experiment, call, options["key"]

    def test_both_signatures_give_the_same_job(self):
        def fn():
            return None

        specs = {"chief": TaskSpec(512, 1)}
        old = tf_yarn.run_on_yarn
        new = importlib.import_module("ydl.compat.tf_yarn.tensorflow").run_on_yarn
        for function, args, options, key in (
            (old, ("e.pex", fn, specs), {}, "chief:0"),
            (old, ("e.pex", fn), {"task_specs": specs}, "chief:0"),
            (old, (), {"pyenv_zip_path": "e.pex", "experiment_fn": fn, "task_specs": specs}, "chief:0"),
            (new, ("e.pex", fn, specs), {}, "chief:0"),
            (new, (fn, specs), {"pyenv_zip_path": "e.pex"}, ContainerKey("chief", 0)),
            (new, (fn,), {"task_specs": specs, "pyenv_zip_path": "e.pex"}, ContainerKey("chief", 0)),
        ):
            experiment, call, as_key = self.arguments_of(function, *args, queue="q", **options)
            self.assertIs(experiment, fn)
            self.assertEqual((call.pyenv_zip_path, call.queue), ("e.pex", "q"))
            self.assertEqual(call.task_specs, specs)
            self.assertEqual(as_key("chief:0"), key)

    def test_options_of_the_first_generation_are_accepted(self):
        specs = {"chief": TaskSpec(512, 1, termination_timeout_seconds=60)}
        self.assertEqual(specs["chief"].tb_termination_timeout_seconds, 60)
        with self.assertLogs(client_module.logger, logging.WARNING) as logs:
            _, call, _ = self.arguments_of(
                tf_yarn.run_on_yarn, "e.pex", print, specs, log_conf_file="conf/log.conf", path_to_log_hdfs="hdfs:///logs",
                env={"A": "1"},
            )  # fmt: skip
        self.assertIn("`path_to_log_hdfs` has no effect", logs.output[0])
        self.assertEqual((call.files, call.env), ({"log.conf": "conf/log.conf"}, {"TF_YARN_LOG_CONF": "log.conf", "A": "1"}))

    def test_the_default_topology_has_a_single_server(self):
        _, call, _ = self.arguments_of(tf_yarn.run_on_yarn, "e.pex", lambda: None)
        self.assertEqual(set(call.task_specs), {"chief", "evaluator", "tensorboard"})

    def test_a_missing_function_or_duplicate_argument_is_rejected(self):
        for args, options in ((("e.pex", 3), {}), (("e.pex", print), {"experiment_fn": print}), ((), {}), ((1, 2, 3, 4), {})):
            with self.assertRaises(TypeError):
                tf_yarn.run_on_yarn(*args, **options)

    def test_a_function_given_by_name_is_imported_when_called(self):
        fn = get_safe_experiment_fn("not_installed_here.experiment", 1)
        fn = pickle.loads(pickle.dumps(fn))
        with self.assertRaises(ImportError):
            fn()
        fn = get_safe_experiment_fn("tests.tf_yarn_functions.experiment_with", "data")
        self.assertEqual(fn(), ("experiment", "data"))

    def test_an_experiment_that_cannot_be_pickled_is_not_submitted(self):
        with socket.socket() as open_socket, mock.patch.object(client_module, "_submit") as submit:
            with self.assertRaises(ydl.Error) as raised:
                tf_yarn.run_on_yarn(sys.executable, lambda: open_socket, {"chief": TaskSpec(512, 1)})
        without = functions._cloudpickle() is None
        expected = "cannot be shipped without `cloudpickle`" if without else "cannot be pickled: TypeError: cannot pickle"
        self.assertIn(expected, raised.exception.message)
        submit.assert_not_called()

    def test_editable_packages_are_shipped_even_if_not_loaded(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("not_loaded", "tf_yarn"):
                os.mkdir(os.path.join(directory, name))
                with open(os.path.join(directory, name, "__init__.py"), "w") as file:
                    file.write("original = True\n")
            listed = [{"name": "project", "version": "1", "editable_project_location": directory}]
            with mock.patch.object(packaging, "_pip_list", return_value=listed):
                packages = bundle.editable_packages()
            self.assertEqual(set(packages), {"not_loaded", "tf_yarn"})
            with bundle.Bundle(b"", packages) as folder:
                shipped = folder[bundle.FOLDER]
                self.assertTrue(os.path.exists(os.path.join(shipped, "not_loaded", "__init__.py")))
                # Tasks need the package of ydl.
                with open(os.path.join(shipped, "tf_yarn", "__init__.py")) as file:
                    self.assertIn("ydl.compat", file.read())
        with mock.patch.object(packaging, "_pip_list", side_effect=RuntimeError("no pip")):
            self.assertEqual(bundle.editable_packages(), {})

    def test_editable_packages_are_shipped_only_with_another_environment(self):
        for source, expected in ((sys.prefix, {}), ("/envs/env.tar.gz", {"own": Path("/own")})):
            environment = plan.Environment(source, ("python",))
            with mock.patch.object(client_module, "environment_of", return_value=environment), \
                    mock.patch.object(client_module, "editable_packages", return_value={"own": Path("/own")}), \
                    mock.patch.object(client_module, "_submit") as submit, \
                    mock.patch.object(client_module, "_follow", return_value=("metrics", False)):
                self.assertEqual(tf_yarn.run_on_yarn("e", user_module.double, {"chief": TaskSpec(512, 1)}), "metrics")
            self.assertEqual(submit.call_args[0][1].additional, expected)

    def test_files_may_be_paths(self):
        with mock.patch.object(ydl, "Job") as job:
            arguments = call(files={"a.py": Path("a.py"), "b": "hdfs:///b"})
            client_module._submit(arguments, bundle.Bundle(b""), {"files": {}}, "local")
        files = job.call_args[1]["files"]
        self.assertEqual((files["a.py"], files["b"]), (os.path.abspath("a.py"), "hdfs:///b"))

    def test_a_too_large_experiment_is_not_submitted_and_leaves_no_files(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        with mock.patch.object(functions, "_MAX_PICKLE_BYTES", 1), self.assertRaises(ydl.Error):
            bundle.pickle_experiment(print)
        with mock.patch.object(tempfile, "tempdir", directory), mock.patch.object(functions, "_MAX_MODULES_BYTES", -1):
            job = ydl.Job.from_function(user_module.double, (1,))
            with self.assertRaises(ydl.Error):
                job.submit(cluster="local")
            with mock.patch.object(functions, "add_package", side_effect=OSError("no space")), self.assertRaises(OSError):
                bundle.Bundle(b"").__enter__()
        self.assertEqual(os.listdir(directory), [])

    def test_run_on_yarn_functions_have_signatures_and_reject_unknown_options(self):
        for module in ("tensorflow.client", "pytorch.client", "distributed.client"):
            function = importlib.import_module("ydl.compat.tf_yarn." + module).run_on_yarn
            self.assertIn("nb_retries", inspect.signature(function).parameters)
            with self.assertRaises(TypeError) as raised:
                function(print, {"chief": TaskSpec(512, 1)}, nb_retry=3)
            self.assertEqual(str(raised.exception), "run_on_yarn got an unknown option `nb_retry`")

    def test_check_hadoop_env_without_the_binary_reports_ko_and_the_reason(self):
        previous = os.getcwd()
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, YDL_BINARY="/missing/ydl"):
            os.chdir(directory)
            self.addCleanup(os.chdir, previous)
            with self.assertLogs("tf_yarn.bin.check_hadoop_env", logging.INFO) as logs:
                self.assertEqual(check_hadoop_env.main([]), 1)
            os.chdir(previous)
        self.assertIn("/missing/ydl", logs.output[-2])
        self.assertTrue(logs.output[-1].endswith("Hadoop setup: KO"))

    def test_container_ids_are_read_from_log_addresses(self):
        urls = {"chief:0": "http://node:8042/node/containerlogs/container_1_2_01_000002/alice"}
        found = ContainerLogStatus(urls, {"chief:0": "SUCCEEDED"}).by_container_id()
        self.assertEqual(found, {"container_1_2_01_000002": ("chief:0", "SUCCEEDED")})


class Names(unittest.TestCase):
    def test_an_alias_is_the_same_package(self):
        meta_path = list(sys.meta_path)
        self.addCleanup(lambda: sys.meta_path.__setitem__(slice(None), meta_path))
        alias("tf_yarn_alias", "ydl.compat.tf_yarn")
        aliased = importlib.import_module("tf_yarn_alias.tensorflow.experiment")
        self.assertIs(aliased.Experiment, tf_yarn.Experiment)
        self.assertEqual(aliased.__spec__.name, "ydl.compat.tf_yarn.tensorflow.experiment")
        with self.assertRaises(ModuleNotFoundError):
            importlib.import_module("tf_yarn_alias.nothing")

    def test_every_name_of_both_layouts_exists(self):
        names = {
            "": "run_on_yarn Experiment TaskSpec NodeLabel Metrics RunFailed single_server_topology ps_strategy_topology "
            "get_safe_experiment_fn standalone_client_mode KV_CLUSTER_INSTANCES KV_EXPERIMENT_FN KV_TF_SESSION_CONFIG",
            ".client": "run_on_yarn standalone_client_mode get_safe_experiment_fn ContainerLogStatus RunFailed",
            ".tensorflow": "run_on_yarn Experiment KerasExperiment TaskSpec NodeLabel Metrics RunFailed get_safe_experiment_fn",
            ".pytorch": "run_on_yarn PytorchExperiment DataLoaderArgs DistributedDataParallelArgs TaskSpec NodeLabel Metrics "
            "RunFailed get_safe_experiment_fn",
            ".distributed.client": "run_on_yarn",
            ".distributed.task": "get_task TaskParameters",
            ".pytorch.model_ckpt": "find_latest_ckpt load_latest_ckpt load_ckpt save_ckpt",
            ".cluster": "n_try get_task get_task_type get_task_description is_worker is_evaluator is_chief aggregate_spec "
            "start_cluster setup_tf_config start_tf_server is_fake_google_env",
            ".event": "wait broadcast init_event start_event stop_event logs_event url_event broadcast_container_start_time "
            "broadcast_container_stop_time broadcast_train_eval_start_timer broadcast_train_eval_stop_timer "
            "maybe_format_exception",
            ".mlflow": "use_mlflow active_run_id get_tracking_uri set_tag set_tags log_param log_params log_metric log_metrics "
            "log_artifact log_artifacts format_key save_text_to_mlflow optional_mlflow",
            ".packaging": "zip_path get_editable_requirements get_non_editable_requirements upload_zip_to_hdfs upload_env "
            "upload_env_to_hdfs upload_env_to_hdfs_from_venv CONDA_PACKER PEX_PACKER detect_packer_from_file get_env_name get_editable_requirements_from_current_venv get_default_fs",
            "._task_commons": "n_try get_task_key is_worker is_evaluator is_chief catchtime _setup_container_logs "
            "_get_cluster_tasks _compute_world_size _get_nb_workers _get_experiment compute_rank choose_master setup_logging",
            ".tensorboard": "url_event_name get_termination_timeout start_tf_board",
            ".topologies": "ContainerKey ContainerTask GB",
            ".tasks.evaluator_fn": "evaluator_fn evaluate",
            ".tasks.logging": "setup",
            ".tensorflow.tasks.evaluator_task": "evaluate keras_evaluate evaluator_fn get_ckpt_to_eval "
            "get_initial_evaluated_checkpoints",
            ".keras_experiment": "KerasExperiment",
        }
        for module, wanted in names.items():
            found = importlib.import_module("ydl.compat.tf_yarn" + module)
            self.assertEqual([name for name in wanted.split() if not hasattr(found, name)], [], module)
        for module in ("tasks", "tensorflow.tasks"):
            for task in ("_independent_workers_task", "_tensorboard_task", "evaluator_task", "gloo_allred_task"):
                self.assertTrue(importlib.util.find_spec("ydl.compat.tf_yarn.{}.{}".format(module, task)))

        self.assertTrue(importlib.util.find_spec("ydl.compat.tf_yarn.tasks._gloo_allred_task"))

    def test_a_name_replaced_in_one_layout_is_replaced_in_the_other(self):
        newer = importlib.import_module("ydl.compat.tf_yarn.tensorflow.cluster")
        self.assertIs(importlib.import_module("ydl.compat.tf_yarn.cluster"), newer)
        self.assertIs(tf_yarn.cluster, newer)

    def test_the_shim_provides_the_old_package_names(self):
        program = (
            "import sys, tf_yarn, cluster_pack, ydl.compat.tf_yarn\n"
            "from tf_yarn.topologies import TaskSpec\nimport tf_yarn.tensorflow, tf_yarn.pytorch, tf_yarn.distributed.client\n"
            "assert tf_yarn is ydl.compat.tf_yarn and tf_yarn.TaskSpec is TaskSpec\n"
            "assert not {'tensorflow', 'torch', 'cloudpickle'} & set(sys.modules)\n"
        )
        self.run_with_shim(program)

    def test_programs_that_import_skein_run_without_it(self):
        # tf-yarn's own examples import skein before tf_yarn.
        program = (
            "import skein\nfrom skein.model import ACLs\nimport tf_yarn\nassert ACLs is tf_yarn.ACLs is skein.ACLs\n"
            "with skein.Client() as client: client.close()\n"
            "try: skein.proto\nexcept AttributeError as error: assert 'see docs/moving/skein.md' in str(error)\n"
            "else: raise SystemExit('no AttributeError')\n"
        )
        self.run_with_shim(program)

    def test_an_installed_skein_has_priority_over_the_shim(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(os.path.join(directory, "skein"))
            with open(os.path.join(directory, "skein", "__init__.py"), "w") as file:
                file.write("original = True\n")
            # pip installs both into one directory.
            shutil.copy(os.path.join(self.root, "tf_yarn-shim", "skein.py"), directory)
            self.run_with_shim("import skein, tf_yarn\nassert skein.original\n", directory)

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def run_with_shim(self, program, *folders):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, self.root, os.path.join(self.root, "tf_yarn-shim")])}
        done = subprocess.run([sys.executable, "-B", "-c", program], env=env, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_names_of_the_store_and_times_are_as_tf_yarn_has_them(self):
        tasks = [ContainerTask("chief", 0, 1), ContainerTask("tensorboard", 0, 1)]
        self.assertEqual(url_event_name(tasks), "tensorboard:0/url")
        self.assertEqual(url_event_name(["tensorboard:0"]), "tensorboard:0/url")
        self.assertIsNone(url_event_name(["chief:0"]))
        with contextlib.redirect_stdout(io.StringIO()) as stdout, catchtime() as timer:
            pass
        self.assertEqual(stdout.getvalue(), timer.readout + "\n")
        self.assertGreater(timer.time, 0)

    def test_skein_model_needs_no_import_of_its_own(self):
        self.run_with_shim("import skein\nassert skein.model.ACLs is skein.ACLs\n")

    def test_modules_of_the_examples_are_imported_without_tensorflow(self):
        program = (
            "import sys\nfrom tf_yarn.examples import winequality\n"
            "assert len(winequality.FEATURES) == 11 and winequality.get_n_classes() == 10\n"
            "assert winequality.__file__.endswith('winequality.py') and 'tensorflow' not in sys.modules\n"
            "try: winequality.get_dataset('x.csv', split='all')\n"
            "except ValueError as error: assert '`all`' in str(error)\n"
            "else: raise SystemExit('no ValueError')\n"
        )
        self.run_with_shim(program)

    def test_functions_without_a_counterpart_name_their_replacement(self):
        for function, replacement in (
            (tf_yarn.standalone_client_mode, "custom_task_module"),
            (tf_yarn.skein_global_daemon, "leave it out"),
            (tf_yarn.app_logs, "`ydl logs ID`"),
            (tf_yarn.packaging.pack_in_pex, "upload_env_to_hdfs"),
        ):
            with self.assertRaises(NotImplementedError) as raised:
                function("e.pex", task_specs={})
            self.assertTrue(str(raised.exception).startswith("`{}` is not supported: ".format(function.__name__)))
            self.assertIn(replacement, str(raised.exception))

    def test_the_package_imports_no_framework(self):
        self.assertFalse({"tensorflow", "torch", "horovod"} & set(sys.modules))


if __name__ == "__main__":
    unittest.main()
