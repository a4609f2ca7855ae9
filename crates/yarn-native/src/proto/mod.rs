//! Hadoop's messages: Rust made from the `.proto` files in `proto/` by `make proto`.
//!
//! They stay inside the crate. What they mean has types of its own, and what is wrong with them
//! (a number no enum has, a field that must be there) is found where those are made.

// Messages of a protocol are complete even where nothing here sends them yet.
#![allow(dead_code)]
// The names in them are Hadoop's.
#![allow(clippy::enum_variant_names)]

use std::fmt;

use zeroize::Zeroize;

pub(crate) mod common {
    include!("generated/hadoop.common.rs");
}
pub(crate) mod yarn {
    include!("generated/hadoop.yarn.rs");
}
pub(crate) mod hdfs {
    include!("generated/hadoop.hdfs.rs");
}

/// Passwords, keys and credentials are in these, so they show their name and nothing else.
macro_rules! show_the_name_only {
    ($($message:ty),* $(,)?) => {$(
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        }
    )*};
}

impl fmt::Debug for common::rpc_sasl_proto::SaslState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}

show_the_name_only!(
    common::TokenProto,
    common::CredentialsKvProto,
    common::RpcSaslProto,
    common::rpc_sasl_proto::SaslAuth,
    yarn::ContainerLaunchContextProto,
    yarn::RegisterApplicationMasterResponseProto,
    yarn::StringBytesMapProto,
    yarn::StringStringMapProto,
);

// Whoever keeps a password takes it out of its message; what stays in one is erased.

impl Drop for common::TokenProto {
    fn drop(&mut self) {
        self.password.zeroize();
    }
}

impl Drop for yarn::ContainerLaunchContextProto {
    fn drop(&mut self) {
        self.tokens.zeroize();
    }
}
