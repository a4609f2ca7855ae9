//! Generates the Rust code of yarn-native's messages from its `.proto` files.
//!
//! The code is committed, so that building the crate needs no protobuf compiler. A test here checks
//! that it is up to date.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost_build::{Config, Service, ServiceGenerator};

/// Messages with passwords, keys or credentials. Their `Debug` implementations are written by hand
/// and hide them.
const SECRET: [&str; 8] = [
    ".hadoop.common.TokenProto",
    ".hadoop.common.CredentialsKVProto",
    ".hadoop.common.RpcSaslProto",
    ".hadoop.common.RpcSaslProto.SaslAuth",
    ".hadoop.yarn.ContainerLaunchContextProto",
    ".hadoop.yarn.RegisterApplicationMasterResponseProto",
    ".hadoop.yarn.StringBytesMapProto",
    ".hadoop.yarn.StringStringMapProto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = crate_root();
    generate(&root.join("proto"), &root.join("src/proto/generated"))
}

/// Returns the directory of `yarn-native`, which contains this tool.
fn crate_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn generate(protos: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let files = proto_files(protos)?;
    let descriptors = protox::compile(&files, [protos])?;
    fs::create_dir_all(out)?;
    Config::new()
        .out_dir(out)
        .skip_debug(SECRET)
        .service_generator(Box::new(Methods))
        .compile_fds(descriptors)?;
    Ok(())
}

fn proto_files(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for package in fs::read_dir(root)? {
        for file in fs::read_dir(package?.path())? {
            files.push(file?.path());
        }
    }
    // Sorted, so that the output does not depend on the order of the directory.
    files.sort();
    Ok(files)
}

/// Generator of a constant per service method: its name on the wire, with its request and response
/// types.
struct Methods;

impl ServiceGenerator for Methods {
    fn generate(&mut self, service: Service, buffer: &mut String) {
        let _ = writeln!(buffer, "/// Methods of `{}`.", service.proto_name);
        let _ = writeln!(buffer, "pub mod {} {{", module_name(&service.proto_name));
        let _ = writeln!(buffer, "use crate::rpc::Method;");
        for method in &service.methods {
            let _ = writeln!(
                buffer,
                "pub const {}: Method<{}, {}> = Method::new({:?});",
                constant_name(&method.proto_name),
                from_submodule(&method.input_type),
                from_submodule(&method.output_type),
                method.proto_name,
            );
        }
        let _ = writeln!(buffer, "}}");
    }
}

/// Prefixes a type path: the constants are one module below the types.
fn from_submodule(path: &str) -> String {
    format!("super::{path}")
}

/// `ApplicationClientProtocolService` → `application_client_protocol`.
fn module_name(service: &str) -> String {
    constant_name(service.trim_end_matches("Service")).to_lowercase()
}

/// `getHAServiceState` → `GET_HA_SERVICE_STATE`.
fn constant_name(camel: &str) -> String {
    let letters: Vec<char> = camel.chars().collect();
    let mut name = String::new();
    for (i, &letter) in letters.iter().enumerate() {
        let after_small = i > 0 && letters[i - 1].is_lowercase();
        let before_small = i > 0 && letters.get(i + 1).is_some_and(|c| c.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_is_up_to_date() -> Result<(), Box<dyn Error>> {
        let fresh = tempfile::tempdir()?;
        generate(&crate_root().join("proto"), fresh.path())?;
        let committed = crate_root().join("src/proto/generated");
        let names = |dir: &Path| -> Result<Vec<_>, Box<dyn Error>> {
            let mut names = Vec::new();
            for file in fs::read_dir(dir)? {
                names.push(file?.file_name());
            }
            names.sort();
            Ok(names)
        };
        assert_eq!(names(&committed)?, names(fresh.path())?, "run `make proto`");
        for name in names(&committed)? {
            let same = fs::read(committed.join(&name))? == fs::read(fresh.path().join(&name))?;
            assert!(same, "{} is not up to date: run `make proto`", name.display());
        }
        Ok(())
    }

    #[test]
    fn method_names_become_rust_constants() {
        assert_eq!(constant_name("getNewApplication"), "GET_NEW_APPLICATION");
        assert_eq!(constant_name("getHAServiceState"), "GET_HA_SERVICE_STATE");
        assert_eq!(constant_name("reInitializeContainer"), "RE_INITIALIZE_CONTAINER");
        assert_eq!(module_name("ClientNamenodeProtocol"), "client_namenode_protocol");
    }
}
