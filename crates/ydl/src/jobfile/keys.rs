//! Every key of the job file, in the order of its reference page. The reader refuses what is not here, and the
//! page is made from it.

/// A key of the job file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// From the top; `*` stands for a name that the user chooses.
    pub path: &'static str,
    /// What its value is.
    pub kind: &'static str,
    /// What it is where it is left out.
    pub default: &'static str,
    /// A value, as it may be written.
    pub example: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Other words people try.
    pub also: &'static [&'static str],
}

impl Key {
    /// Its own name, without what is above it.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The key above it, empty at the top.
    pub fn parent(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(parent, _)| parent)
    }
}

/// The keys right below that one.
pub fn below(parent: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.parent() == parent)
}

const fn key(
    path: &'static str,
    kind: &'static str,
    default: &'static str,
    example: &'static str,
    about: &'static str,
) -> Key {
    Key {
        path,
        kind,
        default,
        example,
        about,
        also: &[],
    }
}

const fn known_as(key: Key, also: &'static [&'static str]) -> Key {
    Key { also, ..key }
}

/// All of them.
pub const KEYS: &[Key] = &[
    key(
        "name",
        "text",
        "the file's name, or its directory's for `job.yaml`",
        "mnist",
        "What people call the job. Letters, digits, `-`, `_` and `.`.",
    ),
    key(
        "framework",
        "`none`, `mxnet`, `pytorch`, `horovod`, `xgboost`, `lightgbm`, `tensorflow` or `jax`",
        "`none`",
        "none",
        "Whose rendezvous the job needs. `none` runs any command.",
    ),
    known_as(
        key(
            "cluster_flags",
            "`true` or `false`",
            "`false`",
            "false",
            "Programs of TensorFlow get `--ps_hosts`, `--worker_hosts`, `--job_name` and `--task_index` after their own arguments, as those written for TensorFlow 1 expect. For roles `ps` and `worker` with `run`.",
        ),
        &[
            "flags",
            "tf_flags",
            "ps_hosts",
            "worker_hosts",
            "job_name",
            "task_index",
        ],
    ),
    known_as(
        key(
            "environment",
            "`system`, a path, or a map",
            "`system`",
            "system",
            "What `python` means in a task, or what all of it runs in: a virtual environment or another directory with `bin` in it, a `requirements.txt` or `pyproject.toml` from which one is made, a `.pex` file. On a cluster it is packed and sent, layer by layer, if it changed; see [environments.md](environments.md). There also a ready archive: `.tar.gz`, `.tgz`, `.tar` or `.zip`, here or at `hdfs://…`. Or an image, as a map or as `docker://image:tag`; see [docker.md](docker.md).",
        ),
        &[
            "venv",
            "virtualenv",
            "python",
            "image",
            "docker",
            "container",
        ],
    ),
    known_as(
        key(
            "environment.path",
            "path",
            "required, where the environment has keys of its own",
            "system",
            "The environment: `environment: {path: ./venv, interpreter: carry}`.",
        ),
        &["source", "venv", "directory"],
    ),
    known_as(
        key(
            "environment.interpreter",
            "`auto`, `carry` or `node`",
            "`auto`",
            "auto",
            "Where the interpreter of a packed environment comes from. `carry` packs it, too; `node` expects the same minor version on every node; `auto` expects those in `/usr` and `/usr/local`, and packs all others.",
        ),
        &["python"],
    ),
    known_as(
        key(
            "environment.docker",
            "image",
            "none",
            "python:3.11",
            "The image that programs run in, as `[registry[:port]/]name[:tag]`: `environment: {docker: python:3.11}`. On a cluster its nodes run it, on one machine the `docker` command does; see [docker.md](docker.md).",
        ),
        &["image", "container", "podman", "oci"],
    ),
    key(
        "environment.runc",
        "image",
        "none",
        "python",
        "An image that a cluster runs with runc, by the name that it has there. Needs Hadoop 3.3.",
    ),
    known_as(
        key(
            "environment.mounts",
            "list of `host:container:ro` or `:rw`",
            "none",
            "[\"/data/mnist:/data:ro\"]",
            "What of the node's files the image sees, and where. The cluster's administrator decides which may be. On Hadoop from 3.1.",
        ),
        &["mount", "volumes", "volume", "binds"],
    ),
    known_as(
        key(
            "environment.network",
            "name",
            "the cluster's own, mostly `host`; `host` on one machine",
            "host",
            "The network of docker containers. In one that is not the node's own, tasks of different nodes reach each other only if that network leads there.",
        ),
        &["net", "network_mode"],
    ),
    key(
        "environment.privileged",
        "`true` or `false`",
        "`false`",
        "true",
        "Whether docker containers may do almost everything that their node can do. Hardly anybody needs it, and few clusters allow it.",
    ),
    known_as(
        key(
            "environment.login",
            "path in HDFS or on every node",
            "what the nodes have",
            "hdfs:///user/alice/docker.json",
            "The login of a docker registry, as `docker login` writes it to `config.json`: a file that NodeManagers can read. Needs Hadoop 3.4. On one machine the `docker` command's own login counts.",
        ),
        &["auth", "credentials", "client_config", "registry"],
    ),
    key(
        "environment.keep",
        "`true` or `false`",
        "`false`",
        "true",
        "Docker containers stay on their nodes after their end, for as long as `yarn.nodemanager.delete.debug-delay-sec` says, where the cluster allows it. On a cluster only.",
    ),
    key(
        "files",
        "list of paths, or of `name: path`",
        "none",
        "[{data.csv: ./data.csv}]",
        "Files and directories that every task finds in its working directory. They are copied at submit, so later edits change nothing; on one machine a file of more than 256 MB is linked instead. On a cluster a path may be `hdfs://…`: what lies there already is not copied.",
    ),
    known_as(
        key(
            "files.*.source",
            "path",
            "required, where a file has keys of its own",
            "data.csv",
            "Where the file comes from: `files: [{data: {source: data.zip, unpack: true}}]`.",
        ),
        &["path", "from", "src", "url"],
    ),
    known_as(
        key(
            "files.*.unpack",
            "`true` or `false`",
            "`false`",
            "true",
            "An archive that every task finds unpacked, as a directory of that name. On a cluster only.",
        ),
        &["extract", "archive"],
    ),
    known_as(
        key(
            "inputs",
            "map of name to source",
            "none",
            "{train: hdfs:///data/train}",
            "Data that tasks find below their working directory under that name when their programs start: see docs/data.md. A source is a file, a directory or a pattern with `*`, here or at `hdfs://…`; what is there is listed once, at submit.",
        ),
        &["input", "data", "datasets"],
    ),
    known_as(
        key(
            "inputs.*.source",
            "path",
            "required, where an input has keys of its own",
            "hdfs:///data/train/part-*",
            "Where it comes from: `inputs: {train: {source: hdfs:///data/train, as: split}}`.",
        ),
        &["path", "from", "src", "url"],
    ),
    known_as(
        key(
            "inputs.*.as",
            "`copy`, `split`, `list` or `split-list`",
            "`copy`",
            "split",
            "What a task gets: all of it; its share of the files, the same after a restart; or only the paths, one a line in the file that `YDL_INPUT_NAME` names: of all files, or of its share.",
        ),
        &["mode", "how", "form"],
    ),
    known_as(
        key(
            "inputs.*.roles",
            "list of roles",
            "every role that is not a service",
            "[worker]",
            "Whose tasks get it. Files are divided over the tasks of each role by itself.",
        ),
        &["role", "for"],
    ),
    key(
        "inputs.*.allow_empty",
        "`true` or `false`",
        "`false`",
        "true",
        "Whether a task may get no file at all: when a pattern matches nothing, or a role has more tasks than there are files.",
    ),
    key(
        "disk",
        "size",
        "what is free, less a twentieth",
        "50 GiB",
        "How much of a node's disk the inputs of one task may take.",
    ),
    key(
        "roles",
        "map of roles",
        "required",
        "{worker: {run: \"true\"}}",
        "The roles in their order; ranks follow it. The keys of a role are below.",
    ),
    known_as(
        key(
            "roles.*.instances",
            "count, or a map",
            "`1`",
            "2",
            "How many tasks the role has. `{min: 2, max: 4}` makes the role elastic: it runs with as many as the cluster gives; see [programs.md](programs.md#elastic).",
        ),
        &["replicas", "count", "tasks", "number", "num"],
    ),
    known_as(
        key(
            "roles.*.instances.min",
            "count",
            "required in a map",
            "2",
            "So many tasks are enough to begin and to go on.",
        ),
        &["minimum", "least", "min_np"],
    ),
    known_as(
        key(
            "roles.*.instances.max",
            "count",
            "required in a map",
            "4",
            "The role never has more tasks.",
        ),
        &["maximum", "most", "max_np"],
    ),
    known_as(
        key(
            "roles.*.instances.start",
            "count",
            "`max`",
            "2",
            "How many tasks are asked for at first; `ydl scale` changes it.",
        ),
        &["first", "initial", "desired"],
    ),
    known_as(
        key(
            "roles.*.processes",
            "count",
            "`1`",
            "1",
            "How many processes of its command each task starts, all in its one container, 64 at most; for `none`, `pytorch`, `horovod` and `jax`. The task ends well when all of them have, and fails with the first that does. See [programs.md](programs.md).",
        ),
        &["nproc_per_node", "nproc", "procs", "slots"],
    ),
    known_as(
        key(
            "roles.*.memory",
            "size",
            "`1 GiB`",
            "512 MiB",
            "Memory of each task, at least 32 MiB. A task that uses more is killed. On one machine the program counts, with all that it starts; on a cluster its node kills, if it is set up to do so, and counts ydl's own two processes along, some 20 MiB.",
        ),
        &["mem", "ram"],
    ),
    known_as(
        key(
            "roles.*.vcores",
            "count",
            "`1`",
            "1",
            "Virtual cores of each task: its share, not a limit. One machine has four for each of its cores.",
        ),
        &["cores", "cpu", "cpus", "vcpu", "vcpus"],
    ),
    known_as(
        key(
            "roles.*.gpus",
            "count",
            "`0`",
            "0",
            "GPUs of each task, which nobody else uses meanwhile.",
        ),
        &["gpu"],
    ),
    key(
        "roles.*.resources",
        "map of counts",
        "none",
        "{}",
        "Other countable resources, by their name on the cluster.",
    ),
    known_as(
        key(
            "roles.*.run",
            "text or list of words",
            "required, here or in `shell`",
            "python train.py --lr 0.1",
            "The program and its arguments. No shell: quotes keep words together, and nothing is expanded. With `mxnet` a server without it runs the worker's, with `tensorflow` every role but the worker.",
        ),
        &["command", "cmd", "exec", "args", "entrypoint"],
    ),
    known_as(
        key(
            "roles.*.shell",
            "text",
            "none",
            "python train.py > log",
            "A script for `/bin/sh -c`, in place of `run`.",
        ),
        &["script", "sh", "bash"],
    ),
    known_as(
        key(
            "roles.*.environment",
            "`system`, or a map with `docker` or `runc`",
            "the job's `environment`",
            "{docker: python:3.11}",
            "What this role's programs run in: an image of its own with the keys below `environment`, or the bare node. What is packed is the same for all roles.",
        ),
        &["image", "docker"],
    ),
    known_as(
        key(
            "roles.*.env",
            "map of texts",
            "none",
            "{OMP_NUM_THREADS: 1}",
            "Variables of this role; they win over the job's.",
        ),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "roles.*.restart",
            "map",
            "the job's `restart`",
            "{limit: 3}",
            "What happens when a task of this role fails; keys as in `restart`.",
        ),
        &["restarts", "retry", "retries"],
    ),
    key(
        "roles.*.completion",
        "`all`, `any`, `decides`, `service`, `follows` or `beside`",
        "`all`; `service` for MXNet's servers, TensorFlow's `ps`, and its workers where both `ps` and `chief` are; `follows` for its `evaluator` and `tensorboard`",
        "all",
        "What the role's end means. `all`: the job needs every task to succeed. `any`: it needs one. `decides`: when all have succeeded the job has, whatever others do. `service`: it need not end and is stopped with the others. `follows`: it ends by itself soon after the others, and is stopped after `deadlines: follow` if it has not. `beside`: it is no part of the job, as TensorBoard or a notebook: it has no rank and its framework does not know it, it is asked for when the others begin to run and is stopped with them, and neither its failures nor its end mean anything.",
    ),
    key(
        "roles.*.tolerate",
        "count or `all`",
        "`0`",
        "0",
        "So many tasks may fail for good before the job fails. With `all` it succeeds whatever becomes of them.",
    ),
    key(
        "roles.*.memory_growth",
        "map",
        "none",
        "{percent: 50, most: 4 GiB}",
        "More memory for a task that was killed for its memory.",
    ),
    key(
        "roles.*.memory_growth.percent",
        "count",
        "`50`",
        "50",
        "So many percent more each time.",
    ),
    key(
        "roles.*.memory_growth.most",
        "size",
        "required",
        "4 GiB",
        "Never more than this.",
    ),
    known_as(
        key(
            "roles.*.after",
            "list of roles",
            "none",
            "[]",
            "Roles that come first: this one's tasks ask for containers when every task of those has run, be it done or not by then. A task that starts again waits for nobody. Only where tasks start on their own (`gang: false`).",
        ),
        &[
            "depends",
            "depends_on",
            "start_after",
            "needs",
            "dependencies",
        ],
    ),
    key(
        "roles.*.ports",
        "list of names",
        "none",
        "[http]",
        "Ports the program wants, told as `YDL_PORT_HTTP`.",
    ),
    known_as(
        key(
            "roles.*.node_label",
            "text",
            "the job's `node_label`",
            "gpu",
            "The label of this role's nodes on a cluster.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "roles.*.placement",
        "map",
        "none",
        "{most_per_node: 1}",
        "Where tasks of this role go on a cluster. One machine has one place for all.",
    ),
    known_as(
        key(
            "roles.*.placement.most_per_node",
            "count",
            "no limit",
            "1",
            "At most so many tasks of the role on one node. Needs Hadoop 3.1. In a job where a role says so or names attributes, wishes for `nodes` and `racks` are not heeded.",
        ),
        &["max_per_node", "per_node"],
    ),
    known_as(
        key(
            "roles.*.placement.nodes",
            "list of names",
            "none",
            "[node1]",
            "Nodes they would best run on: a wish.",
        ),
        &["hosts"],
    ),
    key(
        "roles.*.placement.racks",
        "list of names",
        "none",
        "[/rack1]",
        "Racks they would best run in: a wish.",
    ),
    key(
        "roles.*.placement.attributes",
        "map of texts",
        "none",
        "{cuda: 12}",
        "Attributes their nodes must have. Needs Hadoop 3.2.",
    ),
    known_as(
        key(
            "restart",
            "map",
            "see below",
            "{limit: 3}",
            "What happens when a task fails, for all roles.",
        ),
        &["restarts", "retry", "retries"],
    ),
    key(
        "restart.scope",
        "`task`, `role` or `job`",
        "`task`; `job` with a framework",
        "job",
        "Who starts again: the task alone, its role, or everybody in a new round.",
    ),
    known_as(
        key(
            "restart.limit",
            "count",
            "`0`, in an elastic role `3`",
            "3",
            "So many failures are repaired: of one task where the scope is `task`, of the role otherwise. Preemption and lost nodes never count; a task whose nodes fail it or fall silent five times in a row has failed when it happens again.",
        ),
        &["max", "attempts", "times"],
    ),
    key(
        "restart.backoff",
        "map",
        "see below",
        "{first: 1s, most: 1m}",
        "The wait before the next attempt; it doubles.",
    ),
    key(
        "restart.backoff.first",
        "time",
        "`1s`",
        "1s",
        "The first wait.",
    ),
    key(
        "restart.backoff.most",
        "time",
        "`1m`",
        "1m",
        "The longest wait.",
    ),
    key(
        "restart.window",
        "time or `none`",
        "`none`",
        "1h",
        "Failures older than this are forgotten.",
    ),
    known_as(
        key(
            "env",
            "map of texts",
            "none",
            "{SEED: 1}",
            "Variables of every role.",
        ),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "outputs",
            "map of path to destination",
            "none",
            "{model/: \"out/{role}-{index}\"}",
            "What is copied out of a task's working directory when its program has ended, also after a failure. `{job}`, `{role}` and `{index}` are filled in. Destinations are relative to the job file; on a cluster to the user's home directory in HDFS, or `hdfs://…`. The last part of a path may hold `*`. Two tasks may not write one name: a directory ends in `/` where their files have different names.",
        ),
        &["output", "results"],
    ),
    known_as(
        key(
            "outputs.*.to",
            "destination",
            "required, where an output has keys of its own",
            "out/model",
            "Where it goes: `outputs: {model/: {to: out, from: worker:0, every: 5m}}`.",
        ),
        &["destination", "dest", "path"],
    ),
    known_as(
        key(
            "outputs.*.from",
            "a task, a role or `all`",
            "`all`",
            "worker",
            "Whose output it is.",
        ),
        &["task", "role", "from_task"],
    ),
    known_as(
        key(
            "outputs.*.every",
            "time",
            "only at the end",
            "5m",
            "How often new and finished files are sent while the program runs, as checkpoints should be; then also when a container is taken away, as far as its grace allows.",
        ),
        &["interval", "period"],
    ),
    known_as(
        key(
            "outputs.*.existing",
            "`refuse`, `replace` or `number`",
            "`replace`",
            "number",
            "What happens when the destination is there already, at submit or when the job first sends something there: the job is refused, later its task fails; files of the same names are replaced; or `out` becomes `out-2`.",
        ),
        &["overwrite", "exists", "if_exists"],
    ),
    key(
        "gang",
        "`true`, `false` or a map",
        "`true` with a framework, otherwise `false`",
        "{together: true}",
        "Whether tasks start together.",
    ),
    key(
        "gang.together",
        "`true` or `false`",
        "as `gang`",
        "true",
        "Nobody starts before everybody is there.",
    ),
    key(
        "gang.hold",
        "time",
        "`5m`",
        "5m",
        "How long an incomplete gang keeps what it has.",
    ),
    key(
        "gang.retries",
        "count",
        "`3`",
        "3",
        "How often it gives all back and tries again before the job fails.",
    ),
    key(
        "gang.settle",
        "time",
        "`10s`",
        "10s",
        "How long nothing may have changed before a gang with elastic roles begins with those who are there, or is interrupted for those who have come.",
    ),
    key(
        "gang.backoff",
        "map",
        "see below",
        "{first: 30s, most: 10m}",
        "How long it stays away; it doubles.",
    ),
    key(
        "gang.backoff.first",
        "time",
        "`30s`",
        "30s",
        "The first wait.",
    ),
    key(
        "gang.backoff.most",
        "time",
        "`10m`",
        "10m",
        "The longest wait.",
    ),
    known_as(
        key(
            "deadlines",
            "map",
            "see below",
            "{run: 2h}",
            "How long each wait may take.",
        ),
        &["timeouts", "timeout", "limits"],
    ),
    key(
        "deadlines.allocation",
        "time",
        "`1h`",
        "1h",
        "From asking for containers until all are granted. While a job waits in a cluster's queue for its master, an attached client keeps it; one that was detached waits as long as the cluster lets it.",
    ),
    key(
        "deadlines.launch",
        "time",
        "`2m`",
        "2m",
        "From a grant until the container starts.",
    ),
    key(
        "deadlines.join",
        "time",
        "`15m`",
        "15m",
        "From the container's start until its agent is ready. On a cluster its node first fetches and unpacks files and \
         environment.",
    ),
    key(
        "deadlines.fetch",
        "time",
        "`6h`",
        "6h",
        "How long, beyond `join`, a task's inputs may take to come.",
    ),
    key(
        "deadlines.start",
        "time",
        "`2m`",
        "2m",
        "From the order to run until the program runs.",
    ),
    key(
        "deadlines.run",
        "time or `none`",
        "`none`",
        "2h",
        "From the job's start until its end.",
    ),
    key(
        "deadlines.follow",
        "time",
        "`30m`",
        "30m",
        "From the end of all others until the end of a role that `follows`, such as TensorFlow's evaluator.",
    ),
    key(
        "deadlines.silence",
        "time",
        "`60s`",
        "60s",
        "How long an agent may be quiet, and a program stopped (SIGSTOP).",
    ),
    key(
        "deadlines.grace",
        "time",
        "`10s`",
        "10s",
        "Between SIGTERM and SIGKILL.",
    ),
    key(
        "deadlines.stop",
        "time",
        "`20s`",
        "20s",
        "Beyond the grace, until the container is gone.",
    ),
    key(
        "deadlines.save",
        "time",
        "`10m`",
        "10m",
        "For copying the outputs of a task.",
    ),
    key(
        "blame",
        "map",
        "see below",
        "{failures: 3}",
        "When a node is avoided.",
    ),
    key(
        "blame.failures",
        "count",
        "`3`",
        "3",
        "So many failures of programs on one node make it suspect.",
    ),
    key(
        "blame.forgive_after",
        "time",
        "`30m`",
        "30m",
        "How long a suspect is avoided.",
    ),
    key(
        "blame.at_most",
        "count",
        "`10`",
        "10",
        "At most so many nodes are avoided, and never more than half.",
    ),
    key(
        "ports",
        "range",
        "`20000-32767`",
        "20000-32767",
        "Where tasks find free ports. The default lies below what Linux gives to outgoing connections.",
    ),
    known_as(
        key(
            "tensorboard",
            "`true`, a directory, or a map",
            "`false`",
            "true",
            "TensorBoard beside the job, from the job's environment, as a role of its own: `ydl open JOB` leads there ([boards.md](boards.md)).",
        ),
        &["tb", "board", "tensor_board"],
    ),
    known_as(
        key(
            "tensorboard.logdir",
            "directory, or `hdfs://…`",
            "`YDL_CHECKPOINT`",
            "/shared/runs/{job}",
            "What it looks at. On one machine relative to the job file; on a cluster a path that all nodes share, or a place in HDFS from which event files are brought as they grow. `{job}` is filled in.",
        ),
        &["dir", "log_dir", "logs", "path"],
    ),
    key(
        "tensorboard.memory",
        "size",
        "`1 GiB`",
        "512 MiB",
        "Its memory.",
    ),
    key(
        "tensorboard.vcores",
        "count",
        "`1`",
        "1",
        "Its virtual cores.",
    ),
    key(
        "mlflow",
        "`true`, an address, or a map",
        "`false`",
        "http://mlflow.example.com:5000",
        "MLflow's tracking server, which the master tells what the job is, how it goes and how it ended; `true` takes the address from `MLFLOW_TRACKING_URI` ([boards.md](boards.md)).",
    ),
    known_as(
        key(
            "mlflow.uri",
            "`http://…` or `https://…`",
            "`MLFLOW_TRACKING_URI` of whoever submits",
            "http://mlflow.example.com:5000",
            "The server's address.",
        ),
        &["url", "server", "tracking_uri", "address"],
    ),
    known_as(
        key(
            "mlflow.experiment",
            "text",
            "the job's `name`",
            "digits",
            "The experiment, which is made if there is none.",
        ),
        &["experiment_name"],
    ),
    known_as(
        key(
            "mlflow.run_name",
            "text",
            "the job's id",
            "nightly",
            "What the run is called.",
        ),
        &["run", "name"],
    ),
    key(
        "mlflow.tags",
        "map of texts",
        "none",
        "{team: vision}",
        "Tags of the run, beside `ydl.job` and MLflow's own.",
    ),
    key(
        "mlflow.user",
        "text",
        "none",
        "alice",
        "To a server that asks for a password: whose it is. The password is in `token_file`.",
    ),
    known_as(
        key(
            "mlflow.token_file",
            "path",
            "none",
            "alice.keytab",
            "A file with the server's token, or the user's password; on the machine from which the job is submitted. Only masters get what is in it.",
        ),
        &["token", "password", "password_file", "secret"],
    ),
    key(
        "checkpoint",
        "path, or `hdfs://…`",
        "the job's own directory",
        "hdfs:///user/me/checkpoints/{job}",
        "Where `YDL_CHECKPOINT` outlives containers: an absolute path is a directory that all nodes share and is used as it is; what is in HDFS, or relative on a cluster and so in the user's home directory there, is brought to the node before each attempt and saved while the program runs ([data.md](data.md)). `{job}` is filled in; without it a later job goes on where this one ended.",
    ),
    key(
        "network",
        "an interface, or a range of addresses",
        "the way to the job's master",
        "10.1.0.0/16",
        "Through which of a node's networks tasks reach each other, where it has several: `eth1`, or the range of one, `10.1.0.0/16`. A node that is not in it is avoided. What a node's administrator says with `YDL_NODE_ADDRESS` in `yarn.nodemanager.admin-env` comes after it, and then the address from which the node reaches the master.",
    ),
    key(
        "queue",
        "text",
        "`default`",
        "default",
        "The queue on a cluster. One machine has none.",
    ),
    known_as(
        key(
            "node_label",
            "text",
            "the queue's own",
            "gpu",
            "The label of the job's nodes on a cluster. One machine has none.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "gpu_assignment",
        "`by-cluster` or `by-agent`",
        "`by-cluster`",
        "by-agent",
        "Who gives tasks their GPUs on a cluster. `by-cluster`: it counts `yarn.io/gpu`. `by-agent`: it does not, \
         and agents on a node agree which task has which device; `node_label` leads them to nodes that have some.",
    ),
    key(
        "tags",
        "list of texts",
        "none",
        "[nightly]",
        "Words to find the job by on a cluster; ten at most.",
    ),
    key(
        "priority",
        "number",
        "the queue's own",
        "5",
        "Among the jobs of a queue the highest goes first.",
    ),
    known_as(
        key(
            "acls",
            "map",
            "see below",
            "{view: \"*\"}",
            "Who else may see the job on a cluster, and who may change it.",
        ),
        &["acl", "permissions"],
    ),
    key(
        "acls.view",
        "users, a blank, groups; or `*`",
        "the owner alone",
        "\"alice,bob ml-team\"",
        "Who may see the job and its logs.",
    ),
    key(
        "acls.modify",
        "users, a blank, groups; or `*`",
        "the owner alone",
        "alice",
        "Who may end and scale the job.",
    ),
    known_as(
        key(
            "file_systems",
            "list of `hdfs://…`",
            "none",
            "[\"hdfs://other:8020\"]",
            "Further file systems that programs use: on a secure cluster the job gets a token for each.",
        ),
        &["namenodes", "filesystems"],
    ),
    known_as(
        key(
            "staging",
            "path in HDFS",
            "`.ydl` in the user's home directory",
            "/user/alice/staging",
            "Where what travels to the nodes is kept.",
        ),
        &["staging_dir", "staging_directory"],
    ),
    key(
        "keytab",
        "map",
        "none",
        "{principal: alice@EXAMPLE.COM, path: ./alice.keytab}",
        "With which a job on a secure cluster outlives the longest life of its tokens; without it tokens are renewed until then. It is tried at submit, and only masters get it: they fetch new tokens in time and hand them to the agents.",
    ),
    key(
        "keytab.principal",
        "text",
        "required",
        "alice@EXAMPLE.COM",
        "Whose it is: the user who submits, or a service that acts for him.",
    ),
    key(
        "keytab.path",
        "path",
        "required",
        "./alice.keytab",
        "The file, on the machine from which the job is submitted.",
    ),
    known_as(
        key(
            "master",
            "map",
            "see below",
            "{memory: 512 MiB}",
            "The container of the job's master on a cluster.",
        ),
        &["am", "application_master"],
    ),
    known_as(
        key(
            "master.memory",
            "size",
            "`256 MiB`",
            "512 MiB",
            "Its memory. The default is enough for thousands of tasks.",
        ),
        &["mem", "ram"],
    ),
    known_as(
        key("master.vcores", "count", "`1`", "1", "Its virtual cores."),
        &["cores", "cpus"],
    ),
    known_as(
        key(
            "master.node_label",
            "text",
            "the queue's own",
            "stable",
            "The label of its node.",
        ),
        &["label"],
    ),
    known_as(
        key(
            "master.attempts",
            "count",
            "`4`",
            "4",
            "How often it is started at most; a cluster has a limit of its own. Lost nodes and preemption do not count, except that YARN never follows up on a single one.",
        ),
        &["limit", "retries"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile::load;

    /// The example of every key, each below its parents, as one job file after the other.
    #[test]
    fn the_example_of_every_key_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["data.csv", "data.zip", "alice.keytab"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
        let file = dir.path().join("job.yaml");
        for key in KEYS {
            // The command of a role comes from the example of `run` or `shell`, else from here.
            let has_command = key.path == "roles.*.run" || key.path == "roles.*.shell";
            let role = if has_command { "{}" } else { "{run: sleep 1}" };
            std::fs::write(&file, format!("roles: {{worker: {role}}}")).unwrap();
            let mut source = load(&file).unwrap();
            source.for_cluster();
            source.set(&format!(
                "{}={}",
                key.path.replace('*', "worker"),
                key.example
            ));
            // A range is whole, and its tasks start together.
            if key.path.starts_with("roles.*.instances.") {
                source.set("gang=true");
                for (part, value) in [("min", 1), ("max", 8)] {
                    if !key.path.ends_with(part) {
                        source.set(&format!("roles.worker.instances.{part}={value}"));
                    }
                }
            }
            let needs = match key.path {
                "roles.*.memory_growth.percent" => "roles.worker.memory_growth.most=8 GiB",
                "files.*.unpack" => "files.worker.source=data.zip",
                "environment.interpreter" => "environment.path=venv",
                "environment.mounts"
                | "environment.network"
                | "environment.privileged"
                | "environment.login"
                | "environment.keep" => "environment.docker=python:3.11",
                "inputs.*.as" | "inputs.*.roles" | "inputs.*.allow_empty" => {
                    "inputs.worker.source=/data"
                }
                "outputs.*.from" | "outputs.*.every" | "outputs.*.existing" => {
                    "outputs.worker.to=out/{index}"
                }
                "keytab.principal" => "keytab.path=alice.keytab",
                "keytab.path" => "keytab.principal=alice",
                "mlflow.experiment" | "mlflow.run_name" | "mlflow.tags" | "mlflow.user"
                | "mlflow.token_file" => "mlflow.uri=http://127.0.0.1:5000",
                _ => "name=example",
            };
            source.set(needs);
            if let Err(wrongs) = source.job() {
                panic!("{}: {wrongs}", key.path);
            }
        }
    }

    #[test]
    fn every_key_is_there_once_and_below_its_parent() {
        for (n, key) in KEYS.iter().enumerate() {
            assert!(
                KEYS[..n].iter().all(|other| other.path != key.path),
                "{}",
                key.path
            );
            let parent = key.parent().trim_end_matches(".*");
            assert!(parent.is_empty() || KEYS[..n].iter().any(|other| other.path == parent));
        }
    }
}
