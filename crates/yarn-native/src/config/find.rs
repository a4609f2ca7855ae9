//! Lookup of configuration directories and files.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::table::{Config, ConfigError};
use super::xml;

/// Hadoop's files in reading order. When two files set the same key, the later one wins.
const FILES: [&str; 4] = ["core-site.xml", "yarn-site.xml", "hdfs-site.xml", "resource-types.xml"];

impl Config {
    /// Reads the configuration selected by the environment.
    ///
    /// `YARN_CONF_DIR` takes precedence over `HADOOP_CONF_DIR`, as in Hadoop's own `yarn` command.
    /// Each file is taken from the first directory that contains it. `HADOOP_HOME/etc/hadoop` is
    /// used when neither variable is set. Without any of them only the defaults apply, and
    /// [`Config::files`] is empty.
    pub fn load(environment: Environment) -> Result<Self, ConfigError> {
        let directories = Self::directories(&environment);
        Self::from_directories(&directories, environment)
    }

    /// Returns the directories that [`Config::load`] searches, in order of precedence.
    pub fn directories(environment: &Environment) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for variable in ["YARN_CONF_DIR", "HADOOP_CONF_DIR"] {
            if let Some(directory) = environment.non_empty(variable)
                && !found.iter().any(|other| other == Path::new(directory))
            {
                found.push(directory.into());
            }
        }
        if found.is_empty()
            && let Some(home) = environment.non_empty("HADOOP_HOME")
        {
            found.push(Path::new(home).join("etc/hadoop"));
        }
        found
    }

    /// Reads Hadoop's files from these directories, each file from the first directory that
    /// contains it. Fails if a directory does not exist.
    pub fn from_directories(
        directories: &[PathBuf],
        environment: Environment,
    ) -> Result<Self, ConfigError> {
        for directory in directories {
            std::fs::read_dir(directory)
                .map_err(|source| ConfigError::Unreadable { path: directory.clone(), source })?;
        }
        let mut files = Vec::new();
        for name in FILES {
            for directory in directories {
                let path = directory.join(name);
                // An inaccessible file is an error, not a missing file.
                match path.try_exists() {
                    Ok(false) => continue,
                    Ok(true) => files.push(path),
                    Err(source) => return Err(ConfigError::Unreadable { path, source }),
                }
                break;
            }
        }
        Self::read(&files, directories, environment)
    }

    /// Reads exactly these files in this order; all must exist.
    pub fn from_files(files: &[PathBuf], environment: Environment) -> Result<Self, ConfigError> {
        Self::read(files, &[], environment)
    }

    /// Parses a file's text as if it were the only file in its directory.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_text(text: &str, environment: Environment) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        for property in xml::XmlReader::new(&[]).text(Path::new("/nowhere/yarn-site.xml"), text)? {
            config.insert(property);
        }
        Ok(config)
    }

    fn read(
        files: &[PathBuf],
        directories: &[PathBuf],
        environment: Environment,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let mut reader = xml::XmlReader::new(directories);
        for path in files {
            for property in reader.read(path)? {
                config.insert(property);
            }
            config.add_file(path.clone());
        }
        Ok(config)
    }
}
