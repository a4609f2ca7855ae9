//! Keys that apply on a cluster: access, keytab and master.

use super::Section;
use crate::{
    cluster::{ACL, KEYTAB_FILE, MASTER_MEMORY},
    formats::{NAME, POSITIVE},
};
use ydl_core::spec::{ClusterOptions, Keytab, MasterSpec};

/// Keys of `acls`.
pub(crate) const ACLS: Section<ClusterOptions> = Section {
    default: ClusterOptions::default,
    fields: &[
        field! {
            /// Users who may see the job and its logs.
            "acls.view" = ACL => viewers,
            example "\"alice,bob ml-team\"", default "the owner only"
        },
        field! {
            /// Users who may stop and scale the job.
            "acls.modify" = ACL => modifiers,
            example "alice", default "the owner only"
        },
    ],
};

/// Keys of `keytab`.
pub(crate) const KEYTAB: Section<Keytab> = Section {
    default: || Keytab { principal: String::new(), path: String::new() },
    fields: &[
        field! {
            /// Principal of the keytab: the submitting user, or a service that acts for that user.
            "keytab.principal" = NAME => principal,
            example "alice@EXAMPLE.COM", default "required"
        },
        field! {
            /// Path of the keytab on the submitting machine.
            "keytab.path" = KEYTAB_FILE => path,
            example "./alice.keytab", default "required"
        },
    ],
};

/// Keys of `master`.
pub(crate) const MASTER: Section<MasterSpec> = Section {
    default: MasterSpec::default,
    fields: &[
        field! {
            /// Memory. The default is sufficient for thousands of tasks.
            "master.memory" = MASTER_MEMORY => memory_mib,
            example "512 MiB", also ["mem", "ram"]
        },
        field! {
            /// Virtual cores.
            "master.vcores" = POSITIVE => vcores,
            example "1", also ["cores", "cpus"]
        },
        field! {
            /// Node label.
            "master.node_label" = NAME => node_label,
            example "stable", default "default of the queue", also ["label"]
        },
        field! {
            /// Maximum number of attempts; the cluster has a limit of its own. Lost nodes and preemption do not count,
            /// except that YARN never restarts a master with a single attempt.
            "master.attempts" = POSITIVE => attempts,
            example "4", also ["limit", "retries"]
        },
    ],
};
