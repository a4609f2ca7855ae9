//! Which files are read: the directories that variables name, and the files Hadoop knows in them.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::table::{Config, ConfigError};
use super::xml;

/// In the order in which Hadoop reads them: of two files that set a key the later one wins.
const FILES: [&str; 4] = ["core-site.xml", "yarn-site.xml", "hdfs-site.xml", "resource-types.xml"];

impl Config {
    /// Reads the configuration that the environment names.
    ///
    /// `YARN_CONF_DIR` comes before `HADOOP_CONF_DIR`, as for Hadoop's own `yarn` command; each file is
    /// taken from the first directory that has it. `HADOOP_HOME/etc/hadoop` is looked at when neither is
    /// set. Without any of them there are only the defaults; [`Config::files`] is empty then.
    pub fn load(environment: Environment) -> Result<Self, ConfigError> {
        let directories = Self::directories(&environment);
        Self::from_directories(&directories, environment)
    }

    /// The directories that [`Config::load`] looks in, in order of preference.
    pub fn directories(environment: &Environment) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for variable in ["YARN_CONF_DIR", "HADOOP_CONF_DIR"] {
            if let Some(directory) = environment.non_empty(variable)
                && !found.iter().any(|known| known == Path::new(directory))
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

    /// Reads Hadoop's files from these directories, each file from the first that has it. A directory
    /// that does not exist is an error: somebody named it.
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
                // One that may not be looked at is not taken for one that is not there.
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

    /// Reads exactly these files, in this order; all of them must exist.
    pub fn from_files(files: &[PathBuf], environment: Environment) -> Result<Self, ConfigError> {
        Self::read(files, &[], environment)
    }

    /// A file's text, as if it had been read from a directory with nothing else in it.
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
