//! Keys of files and inputs.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "files",
        "list of paths, or of `name: path`",
        "none",
        "[{data.csv: ./data.csv}]",
        "Files and directories that are copied to the working directory of every task. They are copied at submit, so later edits have no effect; on one machine files above 256 MB are linked. On a cluster a path may be `hdfs://…`; such files are not copied.",
    ),
    known_as(
        key(
            "files.*.source",
            "path",
            "required",
            "data.csv",
            "Source of the file: `files: [{data: {source: data.zip, unpack: true}}]`.",
        ),
        &["path", "from", "src", "url"],
    ),
    known_as(
        key(
            "files.*.unpack",
            "`true` or `false`",
            "`false`",
            "true",
            "Unpacks an archive into a directory of that name. On a cluster only.",
        ),
        &["extract", "archive"],
    ),
    known_as(
        key(
            "inputs",
            "map of name to source",
            "none",
            "{train: hdfs:///data/train}",
            "Data that tasks find under that name in their working directory when their programs start; see [data in and out](../how-to/data.md). A source is a file, a directory or a pattern with `*`, local or at `hdfs://…`. It is listed once, at submit.",
        ),
        &["input", "data", "datasets"],
    ),
    known_as(
        key(
            "inputs.*.source",
            "path",
            "required",
            "hdfs:///data/train/part-*",
            "Source of the input: `inputs: {train: {source: hdfs:///data/train, as: split}}`.",
        ),
        &["path", "from", "src", "url"],
    ),
    known_as(
        key(
            "inputs.*.as",
            "`copy`, `split`, `list` or `split-list`",
            "`copy`",
            "split",
            "Part that a task gets: `copy`: all files; `split`: its share of the files, the same after a restart; `list` and `split-list`: the paths of all files or of its share, one per line, in the file that `YDL_INPUT_NAME` names.",
        ),
        &["mode", "how", "form"],
    ),
    known_as(
        key(
            "inputs.*.roles",
            "list of roles",
            "every role that is not a service",
            "[worker]",
            "Roles whose tasks get the input. Files are split among the tasks of each role separately.",
        ),
        &["role", "for"],
    ),
    key(
        "inputs.*.allow_empty",
        "`true` or `false`",
        "`false`",
        "true",
        "Allows a task to get no file: if a pattern matches nothing, or a role has more tasks than there are files.",
    ),
    key(
        "disk",
        "size",
        "95 % of the free space",
        "50 GiB",
        "Disk space of a node that the inputs of one task may use.",
    ),
];
