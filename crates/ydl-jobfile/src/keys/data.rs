//! What tasks find when they start.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
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
            "Data that tasks find below their working directory under that name when their programs start: see [data in and out](../how-to/data.md). A source is a file, a directory or a pattern with `*`, here or at `hdfs://…`; what is there is listed once, at submit.",
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
];
