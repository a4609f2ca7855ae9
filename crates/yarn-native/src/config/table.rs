//! The properties together: what wins, where it came from, and what was odd about it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::defaults::DEFAULTS;
use super::deprecated;
use super::environment::Environment;
use super::expand;
use super::value;
use super::xml::Property;

/// Remarks kept; a file with more mistakes than this has been read by nobody.
const WARNINGS_MAX: usize = 1000;

/// Hadoop's configuration as it applies: the files over the defaults, every key behind a typed getter.
#[derive(Clone)]
pub struct Config {
    entries: BTreeMap<String, ConfigEntry>,
    environment: Environment,
    files: Vec<PathBuf>,
    warnings: Vec<ConfigWarning>,
}

#[derive(Clone)]
struct ConfigEntry {
    value: String,
    origin: Origin,
    /// Marked `<final>`: later files do not change it.
    locked: bool,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it: what Hadoop assumes.
    Default,
    /// A property in a file.
    File {
        /// The file, an included one perhaps.
        path: Arc<Path>,
        /// The line its `<property>` begins on, counted from 1.
        line: u32,
    },
    /// The program set it; the text says why.
    Program(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("Hadoop's default"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Program(why) => f.write_str(why),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue {
    /// The value, trimmed and with its variables replaced.
    pub text: String,
    /// Where it was set.
    pub origin: Origin,
}

/// Something Hadoop overlooks and a person may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// Where it stands.
    pub origin: Origin,
    /// What is odd.
    pub kind: ConfigWarningKind,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.kind)
    }
}

/// What is odd about a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigWarningKind {
    /// A key under its former name; it was understood.
    Renamed {
        /// The name used.
        old: String,
        /// Today's name.
        new: &'static str,
    },
    /// An earlier file marked the key as final, so this value is not used.
    Locked {
        /// The key.
        key: String,
        /// Where the value that counts was set.
        by: Origin,
    },
    /// A property without a name.
    Nameless,
    /// A property without a value.
    Valueless {
        /// The key.
        key: String,
    },
}

impl fmt::Display for ConfigWarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Renamed { old, new } => write!(f, "`{old}` is called `{new}` now"),
            Self::Locked { key, by } => write!(f, "`{key}` has no effect, it is final in {by}"),
            Self::Nameless => f.write_str("a property has no name"),
            Self::Valueless { key } => write!(f, "`{key}` has no value"),
        }
    }
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file or directory cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not a configuration, or only half of one.
    #[error("cannot use `{}`, line {line}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u32,
        /// What is wrong there.
        why: String,
    },
    /// A value makes no sense.
    #[error("`{key}` is `{value}` ({origin}): {why}")]
    Invalid {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Where it was set.
        origin: Origin,
        /// What is wrong with it.
        why: String,
    },
    /// A key that is needed is not set.
    #[error("`{key}` is not set: {why}")]
    Missing {
        /// The key.
        key: String,
        /// What needs it.
        why: String,
    },
}

impl Config {
    /// What applies where nobody configured anything.
    pub fn defaults(environment: Environment) -> Self {
        let entry = |value: &&str| ConfigEntry {
            value: (*value).to_owned(),
            origin: Origin::Default,
            locked: false,
        };
        Self {
            entries: DEFAULTS
                .iter()
                .map(|(key, value)| ((*key).to_owned(), entry(value)))
                .collect(),
            environment,
            files: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The files read, includes left out.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What Hadoop overlooks and a person may want to know.
    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }

    /// The variables and system properties that values may refer to.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Sets a key, whatever the files say; `why` is shown as its origin.
    pub fn set(&mut self, key: &str, value: impl Into<String>, why: impl Into<String>) {
        let entry =
            ConfigEntry { value: value.into(), origin: Origin::Program(why.into()), locked: true };
        self.entries.insert(deprecated::current_name(key).to_owned(), entry);
    }

    /// A value by its key, today's or a former name; `None` when not set, or set to nothing.
    pub fn value(&self, key: &str) -> Result<Option<ConfigValue>, ConfigError> {
        let Some(entry) = self.entries.get(deprecated::current_name(key)) else {
            return Ok(None);
        };
        let text = self.expand(&entry.value).map_err(|why| ConfigError::Invalid {
            key: key.to_owned(),
            value: entry.value.clone(),
            origin: entry.origin.clone(),
            why,
        })?;
        let text = text.trim();
        Ok((!text.is_empty())
            .then(|| ConfigValue { text: text.to_owned(), origin: entry.origin.clone() }))
    }

    /// Where a key was set; `None` when nobody set it and Hadoop assumes nothing.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.entries.get(deprecated::current_name(key)).map(|entry| &entry.origin)
    }

    /// Keys that begin with `prefix`, in order.
    pub fn keys_under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.entries
            .range(prefix.to_owned()..)
            .map(|(key, _)| key.as_str())
            .take_while(move |key| key.starts_with(prefix))
    }

    fn expand(&self, value: &str) -> Result<String, String> {
        expand::expand(value, &self.environment, |key| {
            let entry = self.entries.get(deprecated::current_name(key))?;
            Some(entry.value.as_str())
        })
    }

    pub(super) fn add_file(&mut self, path: PathBuf) {
        self.files.push(path);
    }

    /// Takes in a property of a file.
    pub(super) fn insert(&mut self, property: Property) {
        let Property { name, value, locked, origin } = property;
        let Some(name) = name else {
            return self.warn(origin, ConfigWarningKind::Nameless);
        };
        let Some(value) = value else {
            return self.warn(origin, ConfigWarningKind::Valueless { key: name });
        };
        let key = match deprecated::replacement(&name) {
            Some(new) => {
                self.warn(origin.clone(), ConfigWarningKind::Renamed { old: name, new });
                new.to_owned()
            }
            None => name,
        };
        if let Some(present) = self.entries.get(&key)
            && present.locked
        {
            if present.value != value {
                let by = present.origin.clone();
                self.warn(origin, ConfigWarningKind::Locked { key, by });
            }
            return;
        }
        self.entries.insert(key, ConfigEntry { value, origin, locked });
    }

    fn warn(&mut self, origin: Origin, kind: ConfigWarningKind) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(ConfigWarning { origin, kind });
        }
    }
}

/// How getters read a value: by its kind, with the key and its origin in what they complain about.
impl Config {
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.value(key)?.map(|value| value.text))
    }

    /// The value as `parse` understands it.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(ConfigValue { text, origin }) = self.value(key)? else {
            return Ok(None);
        };
        match parse(&text) {
            Ok(value) => Ok(Some(value)),
            Err(why) => Err(ConfigError::Invalid { key: key.to_owned(), value: text, origin, why }),
        }
    }

    /// The same for a key that must be set; one with a default always is, unless a file empties it,
    /// and then the default counts.
    pub(super) fn required<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        if let Some(value) = self.parsed(key, &parse)? {
            return Ok(value);
        }
        let default = DEFAULTS.iter().find(|(name, _)| *name == key);
        let assumed = default.and_then(|(_, value)| self.expand(value).ok());
        assumed.and_then(|value| parse(&value).ok()).ok_or_else(|| ConfigError::Missing {
            key: key.to_owned(),
            why: "it has no default".into(),
        })
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        self.required(key, value::flag)
    }

    pub(super) fn number(&self, key: &str) -> Result<u64, ConfigError> {
        self.required(key, value::count)
    }

    pub(super) fn bytes(&self, key: &str) -> Result<u64, ConfigError> {
        self.required(key, value::bytes)
    }

    /// A duration; a number without a unit is in milliseconds.
    pub(super) fn millis(&self, key: &str) -> Result<Duration, ConfigError> {
        self.required(key, |text| value::duration(text, "ms"))
    }

    /// The same for keys where a negative number means "without end".
    pub(super) fn millis_or_unlimited(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        self.required(key, |text| value::duration_or_unlimited(text, "ms"))
    }

    /// A comma list of at most `most` items; empty when not set.
    pub(super) fn list(&self, key: &str, max: usize) -> Result<Vec<String>, ConfigError> {
        let items = self.parsed(key, |text| match value::list(text) {
            items if items.len() > max => Err(format!("more than {max} items")),
            items => Ok(items),
        })?;
        Ok(items.unwrap_or_default())
    }
}

/// Values may be secrets; they are shown one by one, when asked for.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("files", &self.files)
            .field("keys", &self.entries.len())
            .finish_non_exhaustive()
    }
}
