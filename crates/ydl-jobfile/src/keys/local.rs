//! Keys that apply on one machine.

use super::Section;
use crate::{
    files::DIRECTORY,
    formats::{BOOL, OmitDefault},
};
use ydl_core::spec::LocalOptions;

/// Keys of `local`.
pub(crate) const LOCAL: Section<LocalOptions> = Section {
    default: LocalOptions::default,
    fields: &[
        field! {
            /// Directory in which all programs run. They find its files at their paths and write beside them. Files and
            /// inputs of the job are not linked there: modules among them can be imported, and `YDL_INPUT_NAME` has
            /// the path of an input. Outputs are relative to it.
            "local.directory" = DIRECTORY => directory,
            example ".", default "a directory of each task",
            also ["dir", "cwd", "workdir", "working_dir", "working_directory"]
        },
        field! {
            /// Starts all tasks although the machine has less memory or fewer vcores than they request; a warning says
            /// so. Programs are not limited to the memory and vcores of their task, and see every GPU if their role
            /// requests none.
            "local.oversubscribe" = OmitDefault(BOOL) => oversubscribe,
            example "true", default "`false`", also ["overcommit"]
        },
    ],
};
