//! Keys of files, inputs and outputs.

use super::Section;
use crate::{
    data::{DESTINATION, EXISTING, FORM, SCOPE, SOURCE},
    files::FILE_SOURCE,
    formats::{BOOL, List, TEXT, TIME},
    roles::ROLE_NAME,
};
use ydl_core::spec::{File, Input, Output};

/// Keys of a file with options.
pub(crate) const FILE: Section<File> = Section {
    default: File::default,
    fields: &[
        field! {
            /// Source of the file: `files: [{data: {source: data.zip, unpack: true}}]`.
            "files.*.source" = FILE_SOURCE => source,
            example "data.csv", default "required", also ["path", "from", "src", "url"]
        },
        field! {
            /// Unpacks an archive into a directory of that name. On a cluster only.
            "files.*.unpack" = BOOL => unpack,
            example "true", also ["extract", "archive"]
        },
        field! {
            /// Patterns of files that are left out of a directory. `*` and `?` match within a name, `**/` matches any
            /// directories. A pattern with a `/` before its end starts at the directory; a `/` at the end matches
            /// directories only.
            "files.*.ignore" = List { kind: "list of patterns", item: TEXT } => ignore,
            example "[\"*.ckpt\", \"logs/\"]", also ["exclude", "excludes", "without"]
        },
    ],
};

/// Keys of an input.
pub(crate) const INPUT: Section<Input> = Section {
    default: Input::default,
    fields: &[
        field! {
            /// Source of the input: `inputs: {train: {source: hdfs:///data/train, as: split}}`.
            "inputs.*.source" = SOURCE => source,
            example "hdfs:///data/train/part-*", default "required",
            also ["path", "from", "src", "url"]
        },
        field! {
            /// Part that a task gets: `copy`: all files; `split`: its share of the files, the same after a restart;
            /// `list` and `split-list`: the paths of all files or of its share, one per line, in the file that
            /// `YDL_INPUT_NAME` names.
            "inputs.*.as" = FORM => form,
            example "split", also ["mode", "how", "form"]
        },
        field! {
            /// Roles whose tasks get the input. Files are split among the tasks of each role separately.
            "inputs.*.roles" = List { kind: "list of roles", item: ROLE_NAME } => roles,
            example "[worker]", default "every role that is not a service", also ["role", "for"]
        },
        field! {
            /// Allows a task to get no file: if a pattern matches nothing, or a role has more tasks than there are
            /// files.
            "inputs.*.allow_empty" = BOOL => allow_empty,
            example "true"
        },
    ],
};

/// Keys of an output.
pub(crate) const OUTPUT: Section<Output> = Section {
    default: || Output::new("", ""),
    fields: &[
        field! {
            /// Destination: `outputs: {model/: {to: out, from: worker:0, every: 5m}}`.
            "outputs.*.to" = DESTINATION => to,
            example "out/model", default "required", also ["destination", "dest", "path"]
        },
        field! {
            /// Tasks whose output is copied.
            "outputs.*.from" = SCOPE => scope,
            example "worker", also ["task", "role", "from_task"]
        },
        field! {
            /// Interval at which new and finished files are uploaded while the program runs, for example for
            /// checkpoints. They are then also uploaded when a container is preempted, as far as its grace period
            /// allows.
            "outputs.*.every" = TIME => every,
            example "5m", default "at the end only", also ["interval", "period"]
        },
        field! {
            /// Behaviour if the destination exists, at submit or at the first upload. `fail`: the job is rejected, or
            /// later its task fails. `overwrite`: files of the same names are replaced. `number`: `out` becomes
            /// `out-2`.
            "outputs.*.existing" = EXISTING => existing,
            example "number", also ["overwrite", "exists", "if_exists"]
        },
    ],
};
