//! Log aggregation: format, retention and directories.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::logs::LogFormat;

/// Maximum number of log directories of one application.
const DIRECTORIES_MAX: usize = 64;

impl Config {
    /// Returns whether log aggregation is enabled.
    pub fn log_aggregation_enabled(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.log-aggregation-enable")
    }

    /// Returns the format in which logs are written: the first configured one. `None` for a custom
    /// format.
    pub fn log_format(&self) -> Result<Option<LogFormat>, ConfigError> {
        let names = self.log_format_names()?;
        Ok(match names.first().map(String::as_str) {
            Some("TFile") => Some(LogFormat::TFile),
            Some("IndexedFile" | "IFile") => Some(LogFormat::Indexed),
            _ => None,
        })
    }

    fn log_format_names(&self) -> Result<Vec<String>, ConfigError> {
        self.required("yarn.log-aggregation.file-formats", |text| Ok(value::list(text)))
    }

    /// Returns the retention of aggregated logs; `None` is unlimited.
    pub fn log_retention(&self) -> Result<Option<Duration>, ConfigError> {
        self.required("yarn.log-aggregation.retain-seconds", |text| {
            value::duration_or_unlimited(text, "s")
        })
    }

    /// Returns the interval at which the logs of running applications are aggregated; `None` if
    /// only at the end.
    pub fn log_roll_interval(&self) -> Result<Option<Duration>, ConfigError> {
        let key = "yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds";
        let interval = self.required(key, |text| value::duration_or_unlimited(text, "s"))?;
        Ok(interval.filter(|interval| !interval.is_zero()))
    }

    /// Returns the URL of the log server.
    pub fn log_server(&self) -> Result<Option<String>, ConfigError> {
        self.text("yarn.log.server.url")
    }

    /// Returns the candidate directories of an application's aggregated logs, likeliest first; each
    /// contains one file per node. Some may not exist, since formats, buckets and names have
    /// changed between versions. `application` is an id such as `application_1700000000000_0042`.
    pub fn log_directories(
        &self,
        user: &str,
        application: &str,
    ) -> Result<Vec<String>, ConfigError> {
        let number: u64 =
            application.rsplit('_').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let bucket = format!("{:04}", number % 10000);
        let general_root = self.required("yarn.nodemanager.remote-app-log-dir", path)?;
        let general_suffix = self
            .required("yarn.nodemanager.remote-app-log-dir-suffix", |text| Ok(text.to_owned()))?;

        let mut names = self.log_format_names()?;
        for builtin in ["TFile", "IndexedFile", "IFile"] {
            if !names.iter().any(|name| name == builtin) {
                names.push(builtin.into());
            }
        }
        let mut locations: Vec<(String, String)> = Vec::new();
        for name in &names {
            let key = |setting: &str| format!("yarn.log-aggregation.{name}.{setting}");
            let root = self.parsed(&key("remote-app-log-dir"), path)?;
            let root = root.unwrap_or_else(|| general_root.clone());
            let suffix = self.text(&key("remote-app-log-dir-suffix"))?;
            let suffix =
                suffix.unwrap_or_else(|| format!("{general_suffix}-{}", name.to_ascii_lowercase()));
            locations.push((root, suffix));
        }
        locations.push((general_root, general_suffix));

        let mut found: Vec<String> = Vec::new();
        let bucketed = locations
            .iter()
            .map(|(root, suffix)| format!("{root}/{user}/bucket-{suffix}/{bucket}/{application}"));
        let flat =
            locations.iter().map(|(root, suffix)| format!("{root}/{user}/{suffix}/{application}"));
        for directory in bucketed.chain(flat) {
            if !found.contains(&directory) && found.len() < DIRECTORIES_MAX {
                found.push(directory);
            }
        }
        Ok(found)
    }
}

/// Removes trailing slashes from a directory.
fn path(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/') {
        "" => Err("not a log directory".into()),
        text => Ok(text.to_owned()),
    }
}
