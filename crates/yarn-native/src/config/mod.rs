//! Hadoop's configuration: `core-site.xml`, `yarn-site.xml`, `hdfs-site.xml` and
//! `resource-types.xml`, read the way Hadoop reads them, without a JVM.
//!
//! Modules in reading order:
//! * `environment`: variables and system properties that values may reference.
//! * `find`: lookup of directories and files.
//! * `xml`: parses one file into properties and follows includes.
//! * `table`: merged properties with their origins and warnings.
//! * `defaults` and `deprecated`: default values and renamed keys.
//! * `expand` and `value`: variable expansion and value parsers.
//! * `connect`: identity and RPC options of a client.
//! * typed getters by topic: `rpc`, `resource_manager`, `node_manager`, `hdfs`, `viewfs`, `limits`,
//!   `logs`.
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
mod viewfs;

pub use crate::address::{Address, AddressError};
pub use connect::SetupError;
pub use environment::Environment;
pub use hdfs::NameNode;
pub use limits::{HttpsPolicy, PlacementHandler, ResourceTypeSettings, TimelineService};
pub use node_manager::NodeSettings;
pub use resource_manager::{ResourceManager, RetryPolicy};
pub use rpc::{Authentication, RpcSettings};
pub use table::{Config, ConfigError, ConfigValue, ConfigWarning, ConfigWarningKind, Origin};
pub use viewfs::MountTable;
