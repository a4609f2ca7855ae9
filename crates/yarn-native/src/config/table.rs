//! Merged properties with their origins and warnings.

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

/// Maximum number of warnings kept.
const WARNINGS_MAX: usize = 1000;

/// Effective Hadoop configuration: the files over the defaults, with a typed getter for each key.
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
    /// Marked `<final>`: later files must not override it.
    locked: bool,
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Hadoop's default.
    Default,
    /// A property in a file.
    File {
        /// The file, possibly an included one.
        path: Arc<Path>,
        /// Line of its `<property>` element, counted from 1.
        line: u32,
    },
    /// Set by the program; the text describes the reason.
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

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue {
    /// The value, trimmed and with variables expanded.
    pub text: String,
    /// Origin of the value.
    pub origin: Origin,
}

/// A problem that Hadoop ignores silently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// Location of the property.
    pub origin: Origin,
    /// Kind of problem.
    pub kind: ConfigWarningKind,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.kind)
    }
}

/// Kind of problem with a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigWarningKind {
    /// A deprecated key was used; its value applies.
    Deprecated {
        /// The deprecated key.
        old: String,
        /// The current key.
        new: &'static str,
    },
    /// The value is ignored because an earlier file marked the key as final.
    FinalValue {
        /// The key.
        key: String,
        /// Origin of the effective value.
        by: Origin,
    },
    /// A property without a name.
    MissingName,
    /// A property without a value.
    MissingValue {
        /// The key.
        key: String,
    },
}

impl fmt::Display for ConfigWarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deprecated { old, new } => write!(f, "`{old}` is deprecated, use `{new}`"),
            Self::FinalValue { key, by } => write!(f, "`{key}` is ignored: marked final in {by}"),
            Self::MissingName => f.write_str("property without a name"),
            Self::MissingValue { key } => write!(f, "property `{key}` without a value"),
        }
    }
}

/// Error reading or evaluating the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file or directory cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// A file is malformed or truncated.
    #[error("invalid configuration file `{}`, line {line}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u32,
        /// Description of the problem.
        why: String,
    },
    /// A value is invalid.
    #[error("invalid value `{value}` for `{key}` ({origin}): {why}")]
    Invalid {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Origin of the value.
        origin: Origin,
        /// Description of the problem.
        why: String,
    },
    /// A required key is not set.
    #[error("`{key}` is not set: {why}")]
    Missing {
        /// The key.
        key: String,
        /// Reason the key is required.
        why: String,
    },
}

impl Config {
    /// Returns a configuration with Hadoop's defaults only.
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

    /// Returns the files read, without included ones.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the problems that Hadoop ignores silently.
    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }

    /// Returns the variables and system properties that values may reference.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Sets a key, overriding the files; `why` is reported as its origin.
    pub fn set(&mut self, key: &str, value: impl Into<String>, why: impl Into<String>) {
        let entry =
            ConfigEntry { value: value.into(), origin: Origin::Program(why.into()), locked: true };
        self.entries.insert(deprecated::current_name(key).to_owned(), entry);
    }

    /// Returns the value of a key, by its current or deprecated name; `None` if unset or empty.
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

    /// Returns the origin of a key; `None` if unset and without a default.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.entries.get(deprecated::current_name(key)).map(|entry| &entry.origin)
    }

    /// Returns the keys that begin with `prefix`, in order.
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

    /// Adds a property of a file.
    pub(super) fn insert(&mut self, property: Property) {
        let Property { name, value, locked, origin } = property;
        let Some(name) = name else {
            return self.warn(origin, ConfigWarningKind::MissingName);
        };
        let Some(value) = value else {
            return self.warn(origin, ConfigWarningKind::MissingValue { key: name });
        };
        let key = match deprecated::replacement(&name) {
            Some(new) => {
                self.warn(origin.clone(), ConfigWarningKind::Deprecated { old: name, new });
                new.to_owned()
            }
            None => name,
        };
        if let Some(present) = self.entries.get(&key)
            && present.locked
        {
            if present.value != value {
                let by = present.origin.clone();
                self.warn(origin, ConfigWarningKind::FinalValue { key, by });
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

/// Typed accessors for getters. Errors include the key and its origin.
impl Config {
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        Ok(self.value(key)?.map(|value| value.text))
    }

    /// Returns the value parsed by `parse`.
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

    /// Returns the value of a required key. A key with a default is always set; if a file empties
    /// it, the default applies.
    pub(super) fn required<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        if let Some(value) = self.parsed(key, &parse)? {
            return Ok(value);
        }
        let default = DEFAULTS.iter().find(|(name, _)| *name == key);
        let default = default.and_then(|(_, value)| self.expand(value).ok());
        default.and_then(|value| parse(&value).ok()).ok_or_else(|| ConfigError::Missing {
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

    /// Returns a duration; a number without a unit is in milliseconds.
    pub(super) fn millis(&self, key: &str) -> Result<Duration, ConfigError> {
        self.required(key, |text| value::duration(text, "ms"))
    }

    /// Returns a duration; `None` for a negative number, which means unlimited.
    pub(super) fn millis_or_unlimited(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        self.required(key, |text| value::duration_or_unlimited(text, "ms"))
    }

    /// Returns a comma-separated list of at most `max` items; empty if unset.
    pub(super) fn list(&self, key: &str, max: usize) -> Result<Vec<String>, ConfigError> {
        let items = self.parsed(key, |text| match value::list(text) {
            items if items.len() > max => Err(format!("more than {max} items")),
            items => Ok(items),
        })?;
        Ok(items.unwrap_or_default())
    }
}

/// Hides values, since they may be secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("files", &self.files)
            .field("keys", &self.entries.len())
            .finish_non_exhaustive()
    }
}
