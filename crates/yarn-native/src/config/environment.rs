//! What values may refer to beside other keys: variables (`${env.X}`) and Java's system properties.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// Files larger than this are not searched for a user's name.
const PASSWD_BYTES_MAX: u64 = 4 << 20;

/// Environment variables, and the system properties a JVM would have. A value, so that a test or a
/// program with its own idea of them can choose.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
}

impl Environment {
    /// Those of this process. Variables that are not UTF-8 are left out: no configuration can name them.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let mut environment = Self { variables, properties: BTreeMap::new() };
        if environment.property("user.name").is_none()
            && let Some(name) = name_of_own_user()
        {
            environment.set_property("user.name", name);
        }
        environment
    }

    /// The same with a variable set.
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The same with a system property set, as `-Dname=value` does for Java.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set_property(name, value);
        self
    }

    /// Sets a system property.
    pub fn set_property(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.properties.insert(name.into(), value.into());
    }

    /// A variable, if set; it may be empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A variable that says something: set, and not empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<&str> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// A system property: one that was set here, or what Hadoop's own scripts would have passed.
    pub fn property(&self, name: &str) -> Option<String> {
        if let Some(value) = self.properties.get(name) {
            return Some(value.clone());
        }
        let own = |name: &str| self.non_empty(name).map(str::to_owned);
        match name {
            "user.name" => own("USER").or_else(|| own("LOGNAME")),
            "user.home" => own("HOME"),
            "user.dir" => own("PWD"),
            "java.io.tmpdir" => Some("/tmp".into()),
            "file.separator" => Some("/".into()),
            "hadoop.home.dir" => own("HADOOP_HOME"),
            "hadoop.id.str" => own("HADOOP_IDENT_STRING").or_else(|| own("USER")),
            "hadoop.log.dir" => own("HADOOP_LOG_DIR").or_else(|| self.in_home("logs")),
            "yarn.log.dir" => own("YARN_LOG_DIR")
                .or_else(|| own("HADOOP_LOG_DIR"))
                .or_else(|| self.in_home("logs")),
            _ => None,
        }
    }

    fn in_home(&self, folder: &str) -> Option<String> {
        self.non_empty("HADOOP_HOME").map(|home| format!("{home}/{folder}"))
    }
}

/// Values may be secrets, so only the number of them is shown.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("properties", &self.properties.len())
            .finish()
    }
}

/// The user's name by `/etc/passwd`, for processes started without `USER`. A user known only to a
/// directory service is not found; then the name stays unknown, and `${user.name}` as it is.
fn name_of_own_user() -> Option<String> {
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
    fn the_process_has_a_user() {
        assert!(Environment::of_process().property("user.name").is_some());
    }

    #[test]
    fn values_are_not_shown() {
        let environment = Environment::default().with_variable("PASSWORD", "hunter2");
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}
