//! Parser of command lines.

use super::flags::{COMMON_FLAGS, Flag, FlagKind};
use ydl_jobfile::{Location, nearest};
use ydl_os::report::Report;

/// Parsing style of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As Python's argparse with a command at the end: long flags may be abbreviated, and the command's own flags are also
    /// read after the first word of the program.
    Argparse,
    /// The first word that is not a flag starts the program's command, which is kept unchanged.
    Leading,
    /// As Java's tools: one dash or two, and no program's command.
    Gnu,
}

/// Value of a flag on the command line.
#[derive(Clone, Debug)]
pub struct FlagValue {
    /// Canonical name of the flag.
    pub name: &'static str,
    /// Its value; empty where it takes none.
    pub value: String,
    /// Command, flag and value as written, for messages.
    pub written: String,
}

impl FlagValue {
    /// Returns its location for messages.
    pub fn location(&self) -> Location {
        Location::flag(self.written.as_str())
    }
}

/// Parsed command line.
#[derive(Debug)]
pub struct ParsedArgs {
    /// Name of the command as invoked.
    pub name: String,
    flags: Vec<FlagValue>,
    /// Command of the tasks.
    pub command: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl ParsedArgs {
    /// Returns the last value of a flag.
    pub fn last(&self, name: &str) -> Option<&FlagValue> {
        self.flags.iter().rev().find(|arg| arg.name == name)
    }

    /// Returns all values of a flag.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a FlagValue> {
        self.flags.iter().filter(move |arg| arg.name == name)
    }

    /// Returns true if a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }

    /// Parses the count given by a flag.
    pub fn count(&self, flag: &str) -> Result<Option<u32>, Report> {
        let Some(arg) = self.last(flag) else {
            return Ok(None);
        };
        arg.value.parse().map(Some).map_err(|_| {
            Report::bad_input(format!("{}: `{}` is not a number", arg.written, arg.value))
        })
    }

    /// Creates an error prefixed with the name of the command.
    pub fn error(&self, what: impl AsRef<str>) -> Report {
        Report::bad_input(format!("{}: {}", self.name, what.as_ref()))
    }
}

/// Parses a command line.
pub fn parse(
    name: &str,
    style: Style,
    flags: &'static [&'static [Flag]],
    words: Vec<String>,
) -> Result<ParsedArgs, Report> {
    let args = ParsedArgs {
        name: name.to_owned(),
        flags: Vec::new(),
        command: Vec::new(),
        notes: Vec::new(),
    };
    let mut parser = Parser { style, flags, args };
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let in_command = !parser.args.command.is_empty();
        if word == "--" && (!in_command || style == Style::Argparse) {
            parser.args.command.extend(words);
            break;
        }
        let is_flag = word.len() > 1 && word.starts_with('-') && !is_number(&word);
        if in_command {
            // argparse reads a command's own flags in any position.
            let reads_flags = style == Style::Argparse && is_flag;
            match reads_flags.then(|| parser.find_own(&word)).flatten() {
                Some((flag, value)) => {
                    parser.apply(flag, &word, value, &mut words)?;
                    parser.note_flag_after_command(&word);
                }
                None => parser.args.command.push(word),
            }
        } else if is_flag {
            let (flag, value) = parser.find(&word)?;
            parser.apply(flag, &word, value, &mut words)?;
        } else if style == Style::Gnu {
            let what = format!("unexpected argument `{word}`");
            return Err(parser.args.error(what).hint(parser.help_hint()));
        } else {
            parser.args.command.push(word);
        }
    }
    Ok(parser.args)
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

struct Parser {
    style: Style,
    flags: &'static [&'static [Flag]],
    args: ParsedArgs,
}

/// A flag, and its value if both are one word.
type FlagMatch = (&'static Flag, Option<String>);

impl Parser {
    fn own_flags(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.flags.iter().copied().flatten()
    }

    fn all_flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.own_flags().chain(COMMON_FLAGS)
    }

    fn help_hint(&self) -> String {
        format!("see `{} --help`", self.args.name)
    }

    /// Normalizes the spelling of a flag.
    fn normalize(&self, word: &str) -> String {
        match self.style {
            // `-appname` is `--appname`.
            Style::Gnu if !word.starts_with("--") && word.len() > 2 => format!("-{word}"),
            _ => word.to_owned(),
        }
    }

    /// Finds an unabbreviated flag of this command. Common flags are not searched: after the command they are the program's.
    fn find_own(&self, word: &str) -> Option<FlagMatch> {
        let (name, value) = split_value(word);
        // An abbreviation, such as `--file` of `--files`, is the program's.
        let is_abbreviation =
            |flag: &Flag| flag.names.iter().any(|full| *full != name && full.starts_with(name));
        let matches = |flag: &&Flag| {
            !flag.only_before_command
                && flag.names.contains(&name)
                && name.len() > 2
                && !is_abbreviation(flag)
        };
        let flag = self.own_flags().find(matches)?;
        Some((flag, value.map(str::to_owned)))
    }

    fn find(&self, word: &str) -> Result<FlagMatch, Report> {
        let word = self.normalize(word);
        let (name, value) = split_value(&word);
        let value = value.map(str::to_owned);
        if let Some(flag) = self.all_flags().find(|flag| flag.names.contains(&name)) {
            return Ok((flag, value));
        }
        // `-n4` is `-n 4`.
        if !word.starts_with("--")
            && let Some(short) = word.get(..2)
            && let Some(flag) = self.all_flags().find(|flag| flag.names.contains(&short))
            && flag.value_name.is_some()
        {
            return Ok((flag, Some(word[2..].to_owned())));
        }
        let begins = |flag: &&Flag| flag.names.iter().any(|full| full.starts_with(name));
        if self.style == Style::Argparse && name.len() > 2 && name.starts_with("--") {
            let candidates: Vec<_> = self.all_flags().filter(begins).collect();
            if let [flag] = candidates[..] {
                return Ok((flag, value));
            }
            if candidates.len() > 1 {
                let names = candidates.iter().map(|flag| format!("`{}`", flag.names[0]));
                let names = names.collect::<Vec<_>>().join(" or ");
                let what = format!("ambiguous flag `{name}`: it could be {names}");
                return Err(self.args.error(what).hint("write it in full"));
            }
        }
        Err(self.unknown_flag(name))
    }

    fn unknown_flag(&self, name: &str) -> Report {
        let names = self.all_flags().flat_map(|flag| flag.names.iter().copied());
        let known = names.filter(|known| known.len() > 2);
        let hint = match nearest(name, known) {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None if self.style == Style::Gnu => self.help_hint(),
            None => format!(
                "flags of the program come after it, as in `{} … python train.py {name}`; {}",
                self.args.name,
                self.help_hint()
            ),
        };
        self.args.error(format!("unknown flag `{name}`")).hint(hint)
    }

    /// Reads the value of a flag and adds both to the arguments, or to the notes if the flag has no effect.
    fn apply(
        &mut self,
        flag: &'static Flag,
        word: &str,
        joined: Option<String>,
        words: &mut std::iter::Peekable<std::vec::IntoIter<String>>,
    ) -> Result<(), Report> {
        let name = split_value(word).0.to_owned();
        if flag.kind == FlagKind::Rejected {
            let default = "remove it: ydl runs jobs on YARN or on this machine";
            let (system, hint) = flag.about.split_once("; ").unwrap_or((flag.about, default));
            let what = format!("flag `{name}` is not supported: it is for {system}");
            return Err(self.args.error(what).hint(hint));
        }
        let mut values = Vec::new();
        match (flag.value_name, joined) {
            (None, None) => values.push(String::new()),
            (None, Some(_)) => {
                return Err(self.args.error(format!("flag `{name}` takes no value")));
            }
            (Some(_), Some(value)) => values.push(value),
            (Some(value_name), None) => match words.next() {
                Some(value) if !self.is_flag(&value) => values.push(value),
                _ => {
                    let what = format!("missing value for `{name}`");
                    return Err(self.args.error(what).hint(format!("write `{name} {value_name}`")));
                }
            },
        }
        let is_list = flag.kind == FlagKind::List;
        while let Some(value) = words.next_if(|next| is_list && !self.is_flag(next)) {
            values.push(value);
        }
        if flag.kind == FlagKind::Ignored {
            self.args.notes.push(format!("`{name}` has no effect: {}", flag.about));
            return Ok(());
        }
        for value in values {
            let written = match flag.value_name {
                Some(_) => format!("{} {name} {value}", self.args.name),
                None => format!("{} {name}", self.args.name),
            };
            self.args.flags.push(FlagValue { name: flag.names[0], value, written });
        }
        Ok(())
    }

    /// Returns true if a word is a flag of this command; `-1` or an unknown flag is a value.
    fn is_flag(&self, word: &str) -> bool {
        let word = self.normalize(word);
        let (name, _) = split_value(&word);
        self.all_flags().any(|flag| flag.names.contains(&name))
    }

    fn note_flag_after_command(&mut self, word: &str) {
        let (flag, _) = split_value(word);
        let note = format!(
            "`{flag}` after the command is read as a flag of {}, as before; put `--` before the command to pass it to the program",
            self.args.name
        );
        self.args.notes.push(note);
    }
}

/// Splits `--name=value`.
fn split_value(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}
