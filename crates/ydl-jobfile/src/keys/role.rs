//! Keys of a role.

use super::Section;
use crate::{
    cluster::RACK,
    fields::Reader,
    formats::{AMOUNT, BOOL, COUNT, Entries, List, NAME, POSITIVE, SIZE, TEXT, TEXTS},
    image,
    roles::{self, COMPLETION, INSTANCE_COUNT, Instances, ROLE_NAME, TASK_MEMORY, TOLERATED},
};
use ydl_core::spec::{MemoryGrowth, Placement, RoleSpec};

/// Keys of a role.
pub(crate) const ROLE: Section<RoleSpec> = Section {
    default: RoleSpec::default,
    fields: &[
        field! {
            /// Number of tasks of the role. `{min: 2, max: 4}` makes the role elastic: it runs with as many tasks as
            /// the cluster provides; see [elastic training](../how-to/elastic.md).
            "roles.*.instances" = by_hand(
                "count, or a map",
                "Union[int, Keys]",
                Reader::instances,
                roles::print_instances
            ),
            example "2", also ["replicas", "count", "tasks", "number", "num"]
        },
        field! {
            /// Number of processes of the command in each task, up to 64, in one container; for `none`, `pytorch`,
            /// `horovod` and `jax`. The task succeeds when all processes have, and fails with the first that fails. See
            /// [several processes in one task](task-environment.md#several-processes-in-one-task).
            "roles.*.processes" = COUNT => processes,
            example "1", also ["nproc_per_node", "nproc", "procs", "slots"]
        },
        field! {
            /// Memory of each task, at least 32 MiB. A task that exceeds it is killed. On one machine this covers the
            /// program and all its child processes. On a cluster the node enforces it, if configured to, and includes
            /// about 20 MiB for ydl's own two processes.
            "roles.*.memory" = TASK_MEMORY => resources.memory_mib,
            example "512 MiB", also ["mem", "ram"]
        },
        field! {
            /// Virtual cores of each task: a share, not a limit. On one machine there are four for each CPU.
            "roles.*.vcores" = COUNT => resources.vcores,
            example "1", also ["cores", "cpu", "cpus", "vcpu", "vcpus"]
        },
        field! {
            /// GPUs of each task, assigned exclusively.
            "roles.*.gpus" = COUNT => resources.gpus,
            example "0", also ["gpu"]
        },
        field! {
            /// Other countable resources, by their name on the cluster.
            "roles.*.resources" = Entries { kind: "map of counts", item: AMOUNT } => resources.other,
            example "{}"
        },
        field! {
            /// Program and its arguments, run without a shell: quotes group words, and nothing is expanded. With
            /// `mxnet` a server without `run` uses the worker's; with `tensorflow` every role without `run` does.
            "roles.*.run" = by_hand(
                "text or list of words",
                "Union[str, Sequence[str]]",
                Reader::command,
                roles::print_run
            ),
            example "python train.py --lr 0.1", default "required, here or in `shell`",
            also ["command", "cmd", "exec", "args", "entrypoint"]
        },
        field! {
            /// Script for `/bin/sh -c`, instead of `run`.
            "roles.*.shell" = by_hand("text", "str", |_, _, _| {}, roles::print_shell),
            example "python train.py > log", also ["script", "sh", "bash"]
        },
        field! {
            /// Environment of this role's programs: an image, with the keys of `environment`, or `system` for the plain
            /// node. A packed environment is the same for all roles.
            "roles.*.environment" = by_hand(
                "`system`, or a map with `docker` or `runc`",
                "Union[str, Keys]",
                Reader::role_environment,
                image::print_of_role
            ),
            example "{docker: python:3.11}", default "the job's `environment`",
            also ["image", "docker"]
        },
        field! {
            /// Environment variables of this role. They override those of the job.
            "roles.*.env" = TEXTS => env,
            example "{OMP_NUM_THREADS: 1}", also ["environ", "variables"]
        },
        field! {
            /// Restart policy of this role; keys as in `restart`.
            "roles.*.restart" = by_hand(
                "map",
                "Keys",
                Reader::role_restart,
                roles::print_restart
            ),
            example "{limit: 3}", default "the job's `restart`",
            also ["restarts", "retry", "retries"]
        },
        field! {
            /// Effect of the role's end on the job. `all`: the job needs every task to succeed. `any`: the job needs
            /// one task to succeed. `primary`: the job has succeeded when all tasks of this role have. `service`: the
            /// role need not end and is stopped with the others. `follows`: the role ends by itself after the others,
            /// and is stopped after `timeouts.follow`. `sidecar`: the role is not part of the job, like TensorBoard or
            /// a notebook: it has no rank, is unknown to the framework, is started when the others begin to run, is
            /// stopped with them, and neither its failures nor its end affect the job.
            "roles.*.completion" = COMPLETION => completion,
            example "all", default "`all`; `service` for MXNet's servers, TensorFlow's `ps`, and its workers where both `ps` and `chief` are; `follows` for its `evaluator` and `tensorboard`"
        },
        field! {
            /// Number of tasks that may fail permanently before the job fails. With `all` failures of this role are
            /// ignored.
            "roles.*.tolerate" = TOLERATED => tolerate,
            example "0"
        },
        field! {
            /// Increases the memory of a task that was killed for exceeding it.
            "roles.*.memory_growth" = by_hand(
                "map",
                "Keys",
                Reader::memory_growth,
                |role| MEMORY_GROWTH.optional(role.memory_growth.as_ref())
            ),
            example "{percent: 50, max: 4 GiB}"
        },
        field! {
            /// Roles that run first: tasks of this role request containers when every task of those roles has run,
            /// whether or not it has ended. A restarted task does not wait. Only for tasks that start independently
            /// (`gang: false`).
            "roles.*.depends_on" = List { kind: "list of roles", item: ROLE_NAME } => depends_on,
            example "[]", also ["depends", "after", "start_after", "needs", "dependencies"]
        },
        field! {
            /// Names of ports for the program, passed as variables such as `YDL_PORT_HTTP`.
            "roles.*.ports" = List { kind: "list of names", item: TEXT } => ports,
            example "[http]"
        },
        field! {
            /// Node label of this role on a cluster.
            "roles.*.node_label" = NAME => placement.node_label,
            example "gpu", default "the job's `node_label`", also ["label", "node_labels"]
        },
        field! {
            /// Placement of the role's tasks on a cluster. Ignored on one machine.
            "roles.*.placement" = PLACEMENT => placement,
            example "{max_per_node: 1}", default "none"
        },
    ],
};

/// Keys of the size of an elastic role.
pub(crate) const INSTANCES: Section<Instances> = Section {
    default: Instances::default,
    fields: &[
        field! {
            /// Number of tasks required to start and to continue.
            "roles.*.instances.min" = INSTANCE_COUNT => min,
            example "2", default "required in a map", also ["minimum", "least", "min_np"]
        },
        field! {
            /// Maximum number of tasks.
            "roles.*.instances.max" = INSTANCE_COUNT => max,
            example "4", default "required in a map", also ["maximum", "most", "max_np"]
        },
        field! {
            /// Number of tasks requested at first; `ydl scale` changes it.
            "roles.*.instances.start" = INSTANCE_COUNT => start,
            example "2", default "`max`", also ["first", "initial", "desired"]
        },
    ],
};

/// Keys of memory growth.
pub(crate) const MEMORY_GROWTH: Section<MemoryGrowth> = Section {
    default: roles::default_growth,
    fields: &[
        field! {
            /// Increase per restart, in percent.
            "roles.*.memory_growth.percent" = COUNT => percent,
            example "50"
        },
        field! {
            /// Maximum memory.
            "roles.*.memory_growth.max" = SIZE => max_mib,
            example "4 GiB", default "required"
        },
    ],
};

/// Keys of the placement of a role.
pub(crate) const PLACEMENT: Section<Placement> = Section {
    default: Placement::default,
    fields: &[
        field! {
            /// Maximum number of tasks of the role on one node. Requires Hadoop 3.1. If any role of the job sets it or
            /// `attributes`, `nodes` and `racks` are ignored.
            "roles.*.placement.max_per_node" = POSITIVE => max_per_node,
            example "1", default "no limit", also ["per_node"]
        },
        field! {
            /// Preferred nodes.
            "roles.*.placement.nodes" = List { kind: "list of names", item: NAME } => nodes,
            example "[node1]", also ["hosts"]
        },
        field! {
            /// Preferred racks.
            "roles.*.placement.racks" = List { kind: "list of names", item: RACK } => racks,
            example "[/rack1]"
        },
        field! {
            /// Accepts only the nodes and racks of `nodes` and `racks`, instead of preferring them.
            "roles.*.placement.strict" = BOOL => strict,
            example "true", also ["relax_locality"]
        },
        field! {
            /// Required node attributes. Requires Hadoop 3.2.
            "roles.*.placement.attributes" = Entries { kind: "map of texts", item: NAME } => attributes,
            example "{cuda: 12}"
        },
    ],
};
