//! Hadoop's configuration: `core-site.xml`, `yarn-site.xml`, `hdfs-site.xml` and `resource-types.xml`,
//! read the way Hadoop reads them, without a JVM.
//!
//! In reading order:
//! * `environment`: variables and system properties that values may refer to.
//! * `find`: which directories and files are read.
//! * `xml`: one file into properties, includes followed.
//! * `table`: the properties together; what wins, where it came from, and what was odd.
//! * `defaults` and `deprecated`: what Hadoop would have assumed, and what keys were called before.
//! * `expand` and `value`: `${…}`, durations, sizes, numbers.
//! * `connect`: the identity and the options of a caller.
//! * the getters, by whom they concern: `rpc`, `resource_manager`, `node_manager`, `hdfs`, `limits`, `logs`.
//!
//! ```
//! use yarn_native::config::{Config, Environment};
//!
//! let config = Config::defaults(Environment::default());
//! assert_eq!(config.resource_managers()?[0].client.to_string(), "0.0.0.0:8032");
//! # Ok::<(), yarn_native::config::ConfigError>(())
//! ```

mod environment;

mod find;

mod xml;

mod table;

mod defaults;
mod deprecated;

mod expand;
mod value;

mod connect;

mod hdfs;
mod limits;
mod logs;
mod node_manager;
mod resource_manager;
mod rpc;

pub use crate::address::{Address, AddressError};
pub use connect::SetupError;
pub use environment::Environment;
pub use hdfs::NameNode;
pub use limits::{HttpsPolicy, PlacementHandler, ResourceTypeSettings, TimelineService};
pub use node_manager::NodeSettings;
pub use resource_manager::{ResourceManager, RetryPolicy};
pub use rpc::{Authentication, RpcSettings};
pub use table::{Config, ConfigError, ConfigValue, ConfigWarning, ConfigWarningKind, Origin};
