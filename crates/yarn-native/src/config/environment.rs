//! Environment variables (`${env.X}`) and Java system properties that values may reference.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// Maximum size of `/etc/passwd` that is searched for the user name.
const PASSWD_BYTES_MAX: u64 = 4 << 20;

/// Environment variables and the system properties of a JVM. Passed as a value, so that tests and
/// embedding programs can supply their own.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
}

impl Environment {
    /// Returns the environment of this process. Variables that are not UTF-8 are skipped.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let mut environment = Self { variables, properties: BTreeMap::new() };
        if environment.property("user.name").is_none()
            && let Some(name) = current_user_name()
        {
            environment.set_property("user.name", name);
        }
        environment
    }

    /// Adds an environment variable.
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Adds a system property, like `-Dname=value` in Java.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set_property(name, value);
        self
    }

    /// Sets a system property.
    pub fn set_property(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.properties.insert(name.into(), value.into());
    }

    /// Returns a variable if set; it may be empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns a variable if set and not empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<&str> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// Returns a system property: one set here, or the value Hadoop's own scripts would pass.
    pub fn property(&self, name: &str) -> Option<String> {
        if let Some(value) = self.properties.get(name) {
            return Some(value.clone());
        }
        let variable = |name: &str| self.non_empty(name).map(str::to_owned);
        match name {
            "user.name" => variable("USER").or_else(|| variable("LOGNAME")),
            "user.home" => variable("HOME"),
            "user.dir" => variable("PWD"),
            "java.io.tmpdir" => Some("/tmp".into()),
            "file.separator" => Some("/".into()),
            "hadoop.home.dir" => variable("HADOOP_HOME"),
            "hadoop.id.str" => variable("HADOOP_IDENT_STRING").or_else(|| variable("USER")),
            "hadoop.log.dir" => variable("HADOOP_LOG_DIR").or_else(|| self.in_home("logs")),
            "yarn.log.dir" => variable("YARN_LOG_DIR")
                .or_else(|| variable("HADOOP_LOG_DIR"))
                .or_else(|| self.in_home("logs")),
            _ => None,
        }
    }

    fn in_home(&self, folder: &str) -> Option<String> {
        self.non_empty("HADOOP_HOME").map(|home| format!("{home}/{folder}"))
    }
}

/// Shows only the number of values, since they may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("properties", &self.properties.len())
            .finish()
    }
}

/// Returns the user name from `/etc/passwd`, for processes started without `USER`. Users known only
/// to a directory service are not found; `${user.name}` is not expanded then.
fn current_user_name() -> Option<String> {
    let uid = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    if std::fs::metadata("/etc/passwd").ok()?.len() > PASSWD_BYTES_MAX {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_environment_has_a_user_name() {
        assert!(Environment::of_process().property("user.name").is_some());
    }

    #[test]
    fn debug_output_hides_values() {
        let environment = Environment::default().with_variable("PASSWORD", "hunter2");
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}
