//! Flags of a command, and their parser.

use ydl_jobfile::{Location, nearest};
use ydl_os::report::Report;

/// A flag as its users know it.
#[derive(Debug)]
pub struct Flag {
    /// Spellings; the first is the canonical name.
    pub names: &'static [&'static str],
    /// Name of its value in the help, if it takes one.
    pub takes: Option<&'static str>,
    /// Action for the flag.
    pub means: Means,
    /// True if the flag belongs to the program when it follows the command.
    pub ahead: bool,
    /// For the help: what it is, or why it is nothing any more, or whose it is.
    pub about: &'static str,
}

/// Action for a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Becomes part of the job.
    Used,
    /// Becomes part of the job, with values up to the next flag.
    List,
    /// Has no effect; adds a note.
    Noted,
    /// Rejected: belongs to another system.
    Refused,
    /// Common to all commands.
    Ours,
}

/// A flag with a value.
pub const fn used(
    names: &'static [&'static str],
    value: &'static str,
    about: &'static str,
) -> Flag {
    flag(names, Some(value), Means::Used, about)
}

/// A flag without one.
pub const fn switch(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, None, Means::Used, about)
}

/// A flag with values up to the next flag.
pub const fn list(
    names: &'static [&'static str],
    value: &'static str,
    about: &'static str,
) -> Flag {
    flag(names, Some(value), Means::List, about)
}

/// A flag with a value that changes nothing any more, and why.
pub const fn noted(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, Some("X"), Means::Noted, about)
}

/// The same without a value.
pub const fn noted_switch(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, None, Means::Noted, about)
}

/// A flag with a value that is refused, and why.
pub const fn refused(names: &'static [&'static str], about: &'static str) -> Flag {
    flag(names, Some("X"), Means::Refused, about)
}

const fn flag(
    names: &'static [&'static str],
    takes: Option<&'static str>,
    means: Means,
    about: &'static str,
) -> Flag {
    Flag { names, takes, means, ahead: false, about }
}

/// A flag that the older system did not have: behind the command it was always the program's, and still is.
pub const fn ahead(flag: Flag) -> Flag {
    Flag { ahead: true, ..flag }
}

const fn ours(
    names: &'static [&'static str],
    takes: Option<&'static str>,
    about: &'static str,
) -> Flag {
    flag(names, takes, Means::Ours, about)
}

/// Flags common to all commands.
pub const OURS: &[Flag] = &[
    ours(&["--show"], None, "print the job file this command line stands for, and run nothing"),
    ours(&["--dry-run"], None, "check whether the job could run, and leave no trace"),
    ours(&["--detach"], None, "print the job's id and leave it running"),
    ours(&["--download"], Some("DIR"), "when the job is over, download its outputs and logs there"),
    ours(
        &["--resources"],
        Some("WHAT"),
        "on this machine: what jobs may use of it, as memory=8GiB,vcores=4",
    ),
    ours(
        &["--environment"],
        Some("WHAT"),
        "what `environment` of a job file takes: ./venv, requirements.txt, docker://python:3.11",
    ),
    ours(&["--set"], Some("KEY=VALUE"), "put a value on top of the job file"),
    ours(&["--help", "-h"], None, "print this help"),
];

/// Parsing style of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As Python's argparse with a command at the end: the beginning of a long flag is enough where it is clear, and the
    /// door's own flags count behind the command's first word, too.
    Argparse,
    /// The first word that is no flag starts the command, which is kept as it is.
    Leading,
    /// As Java's tools: one dash or two, and no command.
    Gnu,
}

/// Value of a flag on the command line.
#[derive(Clone, Debug)]
pub struct Said {
    /// Canonical name of the flag.
    pub name: &'static str,
    /// Its value; empty where it takes none.
    pub value: String,
    /// Both as they were typed, with the door's name, for messages.
    pub written: String,
}

impl Said {
    /// Returns its location for messages.
    pub fn at(&self) -> Location {
        Location::flag(self.written.as_str())
    }
}

/// Parsed command line.
#[derive(Debug)]
pub struct Typed {
    /// Name of the command as invoked.
    pub door: String,
    said: Vec<Said>,
    /// Command of the tasks.
    pub command: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Typed {
    /// Returns the last value of a flag.
    pub fn last(&self, name: &str) -> Option<&Said> {
        self.said.iter().rev().find(|said| said.name == name)
    }

    /// Returns all values of a flag.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Said> {
        self.said.iter().filter(move |said| said.name == name)
    }

    /// Returns true if a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }

    /// Creates an error prefixed with the name of the command.
    pub fn wrong(&self, what: impl AsRef<str>) -> Report {
        Report::bad_input(format!("{}: {}", self.door, what.as_ref()))
    }
}

/// Parses a command line.
pub fn read(
    door: &str,
    style: Style,
    flags: &'static [&'static [Flag]],
    words: Vec<String>,
) -> Result<Typed, Report> {
    let mut reader = Reader {
        style,
        flags,
        typed: Typed {
            door: door.to_owned(),
            said: Vec::new(),
            command: Vec::new(),
            notes: Vec::new(),
        },
    };
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let begun = !reader.typed.command.is_empty();
        if word == "--" && (!begun || style == Style::Argparse) {
            reader.typed.command.extend(words);
            break;
        }
        let is_flag = word.len() > 1 && word.starts_with('-') && !is_number(&word);
        if begun {
            // Before all of it the door's own flags ended here, or it takes them everywhere.
            let own = (style == Style::Argparse && is_flag).then(|| reader.exact(&word)).flatten();
            match own {
                Some((flag, value)) => {
                    reader.take(flag, &word, value, &mut words)?;
                    reader.note_late(&word);
                }
                None => reader.typed.command.push(word),
            }
        } else if is_flag {
            let (flag, value) = reader.find(&word)?;
            reader.take(flag, &word, value, &mut words)?;
        } else if style == Style::Gnu {
            let what = format!("`{word}` belongs to no flag");
            return Err(reader.typed.wrong(what).hint(reader.see()));
        } else {
            reader.typed.command.push(word);
        }
    }
    Ok(reader.typed)
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

struct Reader {
    style: Style,
    flags: &'static [&'static [Flag]],
    typed: Typed,
}

/// A flag, and the value that stood with it in one word.
type Found = (&'static Flag, Option<String>);

impl Reader {
    fn own(&self) -> impl Iterator<Item = &'static Flag> + use<> {
        self.flags.iter().copied().flatten()
    }

    fn all(&self) -> impl Iterator<Item = &'static Flag> {
        self.own().chain(OURS)
    }

    fn see(&self) -> String {
        format!("see `{} --help`", self.typed.door)
    }

    /// Normalizes the spelling of a flag.
    fn plain(&self, word: &str) -> String {
        match self.style {
            // `-appname` is `--appname`.
            Style::Gnu if !word.starts_with("--") && word.len() > 2 => format!("-{word}"),
            _ => word.to_owned(),
        }
    }

    /// The flag that is written out in full, of the door's own alone: behind a command ours are the program's.
    fn exact(&self, word: &str) -> Option<Found> {
        let (name, value) = halves(word);
        let has = |flag: &&Flag| !flag.ahead && flag.names.contains(&name) && name.len() > 2;
        let flag = self.own().find(has)?;
        Some((flag, value.map(str::to_owned)))
    }

    fn find(&self, word: &str) -> Result<Found, Report> {
        let plain = self.plain(word);
        let (name, value) = halves(&plain);
        let value = value.map(str::to_owned);
        if let Some(flag) = self.all().find(|flag| flag.names.contains(&name)) {
            return Ok((flag, value));
        }
        // `-n4` is `-n 4`.
        if !plain.starts_with("--")
            && let Some(short) = plain.get(..2)
            && let Some(flag) = self.all().find(|flag| flag.names.contains(&short))
            && flag.takes.is_some()
        {
            return Ok((flag, Some(plain[2..].to_owned())));
        }
        let begins = |flag: &&Flag| flag.names.iter().any(|full| full.starts_with(name));
        if self.style == Style::Argparse && name.len() > 2 && name.starts_with("--") {
            let meant: Vec<_> = self.all().filter(begins).collect();
            if let [flag] = meant[..] {
                return Ok((flag, value));
            }
            if meant.len() > 1 {
                let names: Vec<_> =
                    meant.iter().map(|flag| format!("`{}`", flag.names[0])).collect();
                let what = format!("`{name}` could be {}", names.join(" or "));
                return Err(self.typed.wrong(what).hint("write it out"));
            }
        }
        let names = self.all().flat_map(|flag| flag.names.iter().copied());
        let known = names.filter(|known| known.len() > 2);
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if self.style == Style::Gnu => self.see(),
            None => format!(
                "the program's own flags stand behind it, as in `{} … python train.py {name}`; {}",
                self.typed.door,
                self.see()
            ),
        };
        let what = format!("there is no flag `{name}`");
        Err(self.typed.wrong(what).hint(hint))
    }

    fn take(
        &mut self,
        flag: &'static Flag,
        word: &str,
        joined: Option<String>,
        words: &mut std::iter::Peekable<std::vec::IntoIter<String>>,
    ) -> Result<(), Report> {
        let name = halves(word).0.to_owned();
        if flag.means == Means::Refused {
            let usual = "leave it out: jobs of ydl run on YARN or on this machine";
            let (whose, hint) = flag.about.split_once("; ").unwrap_or((flag.about, usual));
            let what = format!("`{name}` is for {whose}");
            return Err(self.typed.wrong(what).hint(hint));
        }
        let mut values = Vec::new();
        match (flag.takes, joined) {
            (None, None) => values.push(String::new()),
            (None, Some(_)) => {
                return Err(self.typed.wrong(format!("`{name}` takes no value")));
            }
            (Some(_), Some(value)) => values.push(value),
            (Some(what), None) => match words.next() {
                Some(value) if !self.is_flag(&value) => values.push(value),
                _ => {
                    let wanted = format!("write `{name} {what}`");
                    let what = format!("`{name}` has no value");
                    return Err(self.typed.wrong(what).hint(wanted));
                }
            },
        }
        let more = flag.means == Means::List;
        while let Some(value) = words.next_if(|next| more && !self.is_flag(next)) {
            values.push(value);
        }
        if flag.means == Means::Noted {
            let note = format!("`{name}` changes nothing: {}", flag.about);
            self.typed.notes.push(note);
            return Ok(());
        }
        for value in values {
            let written = match flag.takes {
                Some(_) => format!("{} {name} {value}", self.typed.door),
                None => format!("{} {name}", self.typed.door),
            };
            self.typed.said.push(Said { name: flag.names[0], value, written });
        }
        Ok(())
    }

    /// Returns true if a word is a flag of this command; `-1` or an unknown flag is a value.
    fn is_flag(&self, word: &str) -> bool {
        let plain = self.plain(word);
        let (name, _) = halves(&plain);
        self.all().any(|flag| flag.names.contains(&name))
    }

    fn note_late(&mut self, word: &str) {
        let name = halves(word).0;
        let door = &self.typed.door;
        let note = format!(
            "`{name}` behind the command is taken as {door}'s own, as it always was; `--` before the command leaves it there"
        );
        self.typed.notes.push(note);
    }
}

/// `--name=value` in two.
fn halves(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// The help's lines about these flags.
pub fn table<'a>(flags: impl IntoIterator<Item = &'a Flag>) -> String {
    let mut lines = String::new();
    for flag in flags {
        let names = flag.names.join(", ");
        let head = match flag.takes {
            Some(value) => format!("{names} {value}"),
            None => names,
        };
        let about = match flag.means {
            Means::Noted => format!("(changes nothing) {}", flag.about),
            Means::Refused => format!("(refused) for {}", flag.about),
            Means::Used | Means::List | Means::Ours => flag.about.to_owned(),
        };
        lines += &match head.len() {
            0..=28 => format!("  {head:<28}  {about}\n"),
            _ => format!("  {head}\n  {:28}  {about}\n", ""),
        };
    }
    lines
}
