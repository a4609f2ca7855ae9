//! Prepares the directory of an agent in a YARN container.
//!
//! YARN provides a working directory with links to the job's files, which serves as the job's directory on this node,
//! and credentials. The bootstrap secret among these credentials becomes the directory that every agent starts with.

use super::{
    bootstrap::{self, BOOTSTRAP_SECRET, BootstrapSecret},
    image,
    network::address_of,
};
use std::{
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
};
use yarn_native::credentials::{Credentials, Format};
use ydl_net::secret::{Scope, Token};
use ydl_os::{env, private};
use ydl_proto::{
    files::JobDir,
    inline_files::{self, INLINE_FILES},
    version::from_json,
};

/// Creates the container's directory from the bootstrap secret and returns its path.
pub(super) fn prepare_directory() -> Result<PathBuf, String> {
    let cwd = std::env::current_dir()
        .map_err(|e| format!("cannot determine the working directory: {e}"))?;
    let file = std::env::var_os(env::HADOOP_TOKEN_FILE_LOCATION).ok_or_else(|| {
        let name = env::HADOOP_TOKEN_FILE_LOCATION;
        format!("not running in a YARN container: `{name}` is not set")
    })?;
    // The administrator's bootstrap takes precedence over the node's own name.
    let variable = |name| std::env::var(name).ok();
    let host = variable(env::NODE_ADDRESS).or_else(|| variable(env::NM_HOST));
    unpack(&cwd, Path::new(&file), host.as_deref())
}

fn unpack(cwd: &Path, file: &Path, host: Option<&str>) -> Result<PathBuf, String> {
    private::close(file);
    let mut credentials = Credentials::read(file).map_err(|e| e.to_string())?;
    let delivered = credentials
        .take_secret(BOOTSTRAP_SECRET)
        .ok_or_else(|| format!("`{}` holds no `{BOOTSTRAP_SECRET}`", file.display()))?;
    // The parse error is withheld: it would show a part of the secret.
    let delivered: BootstrapSecret =
        from_json(delivered.expose()).map_err(|error| match error.is_version() {
            true => format!("cannot read `{BOOTSTRAP_SECRET}` in `{}`: {error}", file.display()),
            false => format!("`{BOOTSTRAP_SECRET}` in `{}` is malformed", file.display()),
        })?;
    if let Some(files) = credentials.take_secret(INLINE_FILES) {
        inline_files::unpack(files.expose(), cwd)
            .map_err(|e| format!("cannot unpack `{INLINE_FILES}` of `{}`: {e}", file.display()))?;
    }
    let mut bootstrap = delivered.bootstrap;
    bootstrap.job = cwd.to_owned();
    if let Some(host) = host {
        let own = image::own_address(host, &bootstrap.master);
        bootstrap.host = own.unwrap_or_else(|| address_of(host, &bootstrap.master));
    }
    let dir = JobDir::at(cwd).container(&bootstrap.container);
    let cannot = |e: &dyn std::fmt::Display| format!("cannot prepare `{}`: {e}", dir.display());
    let token = |scope| match scope {
        Scope::Agent(_) => Token::new(&delivered.agent_token),
        Scope::Program(_) => Token::new(&delivered.program_token),
        _ => None,
    };
    bootstrap.write(&dir, token).map_err(|e| cannot(&e))?;
    // The program needs the cluster's tokens, but not the agent's bootstrap secret.
    credentials
        .write(&dir.join(bootstrap::PROGRAM_CREDENTIALS), Format::Writable)
        .map_err(|e| cannot(&e))?;
    Ok(dir)
}

/// Returns true if a program here could listen at that address.
pub(super) fn is_of_this_node(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::bootstrap::Bootstrap;
    use std::os::unix::fs::PermissionsExt;
    use ydl_core::ContainerId;
    use ydl_proto::version::to_json_line;

    fn delivered(dir: &Path, text: Option<&str>) -> PathBuf {
        let mut credentials = Credentials::default();
        credentials.set_secret("users.own", b"theirs".to_vec());
        let files = [("job.json", "{}")].into();
        credentials.set_secret(INLINE_FILES, inline_files::pack(files).expect("small files"));
        if let Some(text) = text {
            credentials.set_secret(BOOTSTRAP_SECRET, text.as_bytes().to_vec());
        }
        let file = dir.join("container_tokens");
        credentials.write(&file, Format::Writable).expect("a file");
        file
    }

    #[test]
    fn the_bootstrap_secret_becomes_a_directory_and_is_hidden_from_the_program() {
        let place = tempfile::tempdir().unwrap();
        let sent = BootstrapSecret {
            bootstrap: Bootstrap {
                gpus: None,
                job: PathBuf::new(),
                container: ContainerId::from("container_7"),
                master: "10.0.0.1:4000".into(),
                host: "elsewhere".into(),
                staging: Some("hdfs://nn:1/user/a/.ydl/jobs/j".into()),
            },
            agent_token: "agent.container_7.aa".into(),
            program_token: "program.container_7.bb".into(),
        };
        let sent = String::from_utf8(to_json_line(&sent).unwrap()).unwrap();
        let file = delivered(place.path(), Some(&sent));
        let dir = unpack(place.path(), &file, Some("127.0.0.9")).unwrap();
        let bootstrap = Bootstrap::read(&dir).unwrap();
        assert_eq!(bootstrap.job, place.path());
        assert_eq!(bootstrap.host, "127.0.0.9");
        assert_eq!(dir, place.path().join("containers/container_7"));
        assert!(dir.join("work").is_dir());
        for name in
            [bootstrap::AGENT_TOKEN, bootstrap::PROGRAM_TOKEN, bootstrap::PROGRAM_CREDENTIALS]
        {
            let mode = dir.join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let left = Credentials::read(&dir.join(bootstrap::PROGRAM_CREDENTIALS)).unwrap();
        let names: Vec<_> = left.secrets().map(|(name, _)| name).collect();
        assert_eq!(names, ["users.own"]);
        assert!(place.path().join("job.json").is_file());
    }

    #[test]
    fn a_missing_or_malformed_bootstrap_secret_is_rejected_without_showing_it() {
        let place = tempfile::tempdir().unwrap();
        let absent = unpack(place.path(), &place.path().join("none"), None).unwrap_err();
        assert!(absent.contains("none`"), "{absent}");
        let file = delivered(place.path(), None);
        let empty = unpack(place.path(), &file, None).unwrap_err();
        assert!(empty.ends_with("holds no `ydl.bootstrap`"), "{empty}");
        let file = delivered(place.path(), Some(r#"{"version":1,"agent_token":"hunter2"}"#));
        let broken = unpack(place.path(), &file, None).unwrap_err();
        assert!(broken.ends_with("is malformed"), "{broken}");
        assert!(!broken.contains("hunter2"), "{broken}");
        let file = delivered(place.path(), Some(r#"{"version":2,"agent_token":"hunter2"}"#));
        let newer = unpack(place.path(), &file, None).unwrap_err();
        let version = "unsupported file version 2: this `ydl` reads version 1";
        assert!(newer.ends_with(version) && !newer.contains("hunter2"), "{newer}");
    }
}
