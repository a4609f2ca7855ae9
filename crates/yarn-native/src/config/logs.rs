//! Aggregated logs: whether there are any, in which format, and where.

use std::time::Duration;

use super::table::{Config, ConfigError};
use super::value;
use crate::logs::LogFormat;

/// Directories looked at for one application at most.
const DIRECTORIES_MAX: usize = 64;

impl Config {
    /// Whether logs are collected when an application ends.
    pub fn log_aggregation_enabled(&self) -> Result<bool, ConfigError> {
        self.flag("yarn.log-aggregation-enable")
    }

    /// The format in which logs are written: the first of the list. `None`: one that the site made itself.
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

    /// How long collected logs are kept; `None` is for ever.
    pub fn log_retention(&self) -> Result<Option<Duration>, ConfigError> {
        self.required("yarn.log-aggregation.retain-seconds", |text| {
            value::duration_or_unlimited(text, "s")
        })
    }

    /// How often the logs of a running application are collected; `None` is only at its end.
    pub fn log_roll_interval(&self) -> Result<Option<Duration>, ConfigError> {
        let key = "yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds";
        let interval = self.required(key, |text| value::duration_or_unlimited(text, "s"))?;
        Ok(interval.filter(|interval| !interval.is_zero()))
    }

    /// A server that shows collected logs, as a URL.
    pub fn log_server(&self) -> Result<Option<String>, ConfigError> {
        self.text("yarn.log.server.url")
    }

    /// The directories in which an application's collected logs may lie, the likeliest first: one file per
    /// node in each. Some will not exist: formats, buckets and names have changed over the versions.
    /// `application` is an id such as `application_1700000000000_0042`.
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
        for known in ["TFile", "IndexedFile", "IFile"] {
            if !names.iter().any(|name| name == known) {
                names.push(known.into());
            }
        }
        let mut places: Vec<(String, String)> = Vec::new();
        for name in &names {
            let key = |what: &str| format!("yarn.log-aggregation.{name}.{what}");
            let root = self.parsed(&key("remote-app-log-dir"), path)?;
            let root = root.unwrap_or_else(|| general_root.clone());
            let suffix = self.text(&key("remote-app-log-dir-suffix"))?;
            let suffix =
                suffix.unwrap_or_else(|| format!("{general_suffix}-{}", name.to_ascii_lowercase()));
            places.push((root, suffix));
        }
        places.push((general_root, general_suffix));

        let mut found: Vec<String> = Vec::new();
        let bucketed = places
            .iter()
            .map(|(root, suffix)| format!("{root}/{user}/bucket-{suffix}/{bucket}/{application}"));
        let flat =
            places.iter().map(|(root, suffix)| format!("{root}/{user}/{suffix}/{application}"));
        for directory in bucketed.chain(flat) {
            if !found.contains(&directory) && found.len() < DIRECTORIES_MAX {
                found.push(directory);
            }
        }
        Ok(found)
    }
}

/// A directory without a slash at its end.
fn path(text: &str) -> Result<String, String> {
    match text.trim_end_matches('/') {
        "" => Err("not a directory for logs".into()),
        text => Ok(text.to_owned()),
    }
}
