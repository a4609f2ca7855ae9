//! Launch contexts of containers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::proto::yarn::{
    ApplicationAccessTypeProto, ApplicationAclMapProto, ContainerLaunchContextProto,
    ContainerRetryContextProto, ContainerRetryPolicyProto, StringBytesMapProto,
    StringLocalResourceMapProto, StringStringMapProto,
};
use crate::token::Secret;
use crate::types::LocalResource;
use crate::types::named::named;

named! {
    /// Operation that an access list controls.
    pub enum Access: ApplicationAccessTypeProto, "access type" {
        /// Viewing the application and its logs.
        View = AppaccessViewApp "VIEW_APP",
        /// Changing and ending the application.
        Modify = AppaccessModifyApp "MODIFY_APP",
    }
}

/// Process to start in a container. The NodeManager runs it as a shell script in an empty
/// directory.
///
/// Values and commands are inserted into that script between double quotes without escaping, so the
/// shell expands `$X` and backquotes. Before that, `<LOG_DIR>` is replaced by the container's log
/// directory and `{{X}}` by `$X`. Do not put secrets there: the script is copied to the logs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LaunchContext {
    /// Commands, joined by blanks in the script.
    pub commands: Vec<String>,
    /// Environment variables beyond those the NodeManager sets.
    pub environment: BTreeMap<String, String>,
    /// Files by their names in the container's directory.
    pub resources: BTreeMap<String, LocalResource>,
    /// Hadoop credentials in the format of a credentials file. The container finds them in the file
    /// named by `HADOOP_TOKEN_FILE_LOCATION`.
    pub credentials: Option<Secret>,
    /// Configuration (in Hadoop's serialised form) with which the ResourceManager finds the servers
    /// that renew these tokens. Only a master's context needs it.
    pub credentials_conf: Vec<u8>,
    /// Data for auxiliary services of the node, by service name. A node that lacks a service
    /// rejects the container.
    pub service_data: BTreeMap<String, Vec<u8>>,
    /// Access lists such as `user1,user2 group1`; `*` allows all users, a single blank none.
    pub access: BTreeMap<Access, String>,
    /// Restart policy on the node, if any.
    pub retry: Option<Retry>,
}

/// Restart policy of a NodeManager, within the same container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Exits that are retried.
    pub on: RetryOn,
    /// Maximum number of retries; `None` is unlimited.
    pub max_retries: Option<u32>,
    /// Delay before a retry.
    pub interval: Duration,
    /// Window in which failures count; `None` counts all.
    pub window: Option<Duration>,
}

/// Exits after which a container is restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryOn {
    /// All exit codes but 0.
    AnyError,
    /// Listed exit codes.
    Codes(Vec<i32>),
}

impl fmt::Debug for LaunchContext {
    /// Shows names only: values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchContext")
            .field("commands", &self.commands)
            .field("environment", &self.environment.keys())
            .field("resources", &self.resources)
            .field("service_data", &self.service_data.keys())
            .field("access", &self.access)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

impl LaunchContext {
    /// Creates a context that runs one command.
    pub fn command(command: impl Into<String>) -> Self {
        Self { commands: vec![command.into()], ..Self::default() }
    }

    pub(crate) fn proto(&self) -> ContainerLaunchContextProto {
        let resource = |(name, resource): (&String, &LocalResource)| StringLocalResourceMapProto {
            key: Some(name.clone()),
            value: Some(resource.proto()),
        };
        let variable = |(name, value): (&String, &String)| StringStringMapProto {
            key: Some(name.clone()),
            value: Some(value.clone()),
        };
        let service = |(name, data): (&String, &Vec<u8>)| StringBytesMapProto {
            key: Some(name.clone()),
            value: Some(data.clone()),
        };
        let access = |(access, list): (&Access, &String)| ApplicationAclMapProto {
            access_type: Some(access.proto().into()),
            acl: Some(list.clone()),
        };
        ContainerLaunchContextProto {
            local_resources: self.resources.iter().map(resource).collect(),
            tokens: self.credentials.as_ref().map(|s| s.expose().to_vec()),
            service_data: self.service_data.iter().map(service).collect(),
            environment: self.environment.iter().map(variable).collect(),
            command: self.commands.clone(),
            application_ac_ls: self.access.iter().map(access).collect(),
            container_retry_context: self.retry.as_ref().map(Retry::proto),
            tokens_conf: (!self.credentials_conf.is_empty()).then(|| self.credentials_conf.clone()),
        }
    }
}

impl Retry {
    fn proto(&self) -> ContainerRetryContextProto {
        let (policy, error_codes) = match &self.on {
            RetryOn::AnyError => (ContainerRetryPolicyProto::RetryOnAllErrors, Vec::new()),
            RetryOn::Codes(codes) => {
                (ContainerRetryPolicyProto::RetryOnSpecificErrorCodes, codes.clone())
            }
        };
        let times = self.max_retries.map_or(-1, |n| n.try_into().unwrap_or(i32::MAX));
        let pause = self.interval.as_millis().try_into().unwrap_or(i32::MAX);
        let window = self.window.map(|w| w.as_millis().try_into().unwrap_or(i64::MAX));
        ContainerRetryContextProto {
            retry_policy: Some(policy.into()),
            error_codes,
            max_retries: Some(times),
            retry_interval: Some(pause),
            failures_validity_interval: window,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_values_and_credentials() {
        let mut launch = LaunchContext::command("true");
        launch.environment.insert("KEY".into(), "hunter2".into());
        launch.service_data.insert("shuffle".into(), b"hunter2".to_vec());
        launch.credentials = Some(b"hunter2".to_vec().into());
        let shown = format!("{launch:?} {:?}", launch.proto());
        assert!(shown.contains("KEY") && shown.contains("shuffle"));
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }

    #[test]
    fn unlimited_retries_are_encoded_as_minus_one() {
        let retry = Retry {
            on: RetryOn::Codes(vec![7]),
            max_retries: None,
            interval: Duration::from_secs(1),
            window: None,
        };
        let proto = retry.proto();
        assert_eq!((proto.max_retries(), proto.retry_interval()), (-1, 1000));
        assert_eq!(proto.error_codes, [7]);
        assert_eq!(proto.failures_validity_interval(), -1);
    }
}
