//! Definitions of a command's flags, and their help.

/// Flag of a command.
#[derive(Debug)]
pub struct Flag {
    /// Spellings; the first is the canonical name.
    pub names: &'static [&'static str],
    /// Name of its value in the help, if it takes one.
    pub value_name: Option<&'static str>,
    /// Treatment of the flag.
    pub kind: FlagKind,
    /// True if the flag belongs to the program when it follows the command.
    pub only_before_command: bool,
    /// Text of the help: the flag's meaning, the reason why it has no effect, or the system to which it belongs.
    pub about: &'static str,
}

/// Treatment of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagKind {
    /// Becomes part of the job.
    Translated,
    /// Becomes part of the job, with values up to the next flag.
    List,
    /// Has no effect; adds a note.
    Ignored,
    /// Belongs to another system; an error.
    Rejected,
    /// Common to all commands.
    Common,
}

/// Defines a flag with a value.
pub const fn with_value(
    names: &'static [&'static str],
    value_name: &'static str,
    about: &'static str,
) -> Flag {
    flag(names, Some(value_name), FlagKind::Translated, about)
}

/// Defines a flag without a value.
pub const fn switch(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, None, FlagKind::Translated, about)
}

/// Defines a flag with values up to the next flag.
pub const fn list(
    names: &'static [&'static str],
    value_name: &'static str,
    about: &'static str,
) -> Flag {
    flag(names, Some(value_name), FlagKind::List, about)
}

/// Defines a flag with a value that has no effect, and the reason.
pub const fn ignored(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, Some("X"), FlagKind::Ignored, about)
}

/// Defines a flag without a value that has no effect, and the reason.
pub(crate) const fn ignored_switch(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, None, FlagKind::Ignored, about)
}

/// Defines a flag with a value that is an error, and the system to which it belongs; a hint may follow after `; `.
pub const fn rejected(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, Some("X"), FlagKind::Rejected, about)
}

const fn flag(
    names: &'static [&'static str],
    value_name: Option<&'static str>,
    kind: FlagKind,
    about: &'static str,
) -> Flag {
    Flag { names, value_name, kind, only_before_command: false, about }
}

/// Restricts a flag that the older system did not have: after the command it belongs to the program, as before.
pub(crate) const fn before_command(flag: Flag) -> Flag {
    Flag { only_before_command: true, ..flag }
}

const fn common(
    names: &'static [&'static str],
    value_name: Option<&'static str>,
    about: &'static str,
) -> Flag {
    flag(names, value_name, FlagKind::Common, about)
}

/// Flags common to all commands.
pub const COMMON_FLAGS: &[Flag] = &[
    common(&["--show"], None, "print the job file for this command line and run nothing"),
    common(&["--dry-run"], None, "check whether the job could run, and change nothing"),
    common(&["--detach"], None, "print the job's id and leave it running"),
    common(&["--download"], Some("DIR"), "download outputs and logs there when the job ends"),
    common(
        &["--resources"],
        Some("LIST"),
        "limit what jobs may use of this machine, such as memory=8GiB,vcores=4",
    ),
    common(
        &["--environment"],
        Some("ENV"),
        "set `environment` of the job file: ./venv, requirements.txt, docker://python:3.11",
    ),
    common(&["--set"], Some("KEY=VALUE"), "set a value of the job file"),
    common(&["--help", "-h"], None, "print this help"),
];

/// Formats the help of these flags.
pub fn table<'a>(flags: impl IntoIterator<Item = &'a Flag>) -> String {
    let mut lines = String::new();
    for flag in flags {
        let names = flag.names.join(", ");
        let head = match flag.value_name {
            Some(value) => format!("{names} {value}"),
            None => names,
        };
        let about = match flag.kind {
            FlagKind::Ignored => format!("(no effect) {}", flag.about),
            FlagKind::Rejected => format!("(not supported) for {}", flag.about),
            FlagKind::Translated | FlagKind::List | FlagKind::Common => flag.about.to_owned(),
        };
        lines += &match head.len() {
            0..=28 => format!("  {head:<28}  {about}\n"),
            _ => format!("  {head}\n  {:28}  {about}\n", ""),
        };
    }
    lines
}
