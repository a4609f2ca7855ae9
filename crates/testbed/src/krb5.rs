//! MIT Kerberos programs: those installed on this machine, else unpacked from the distribution's
//! packages, which requires no root.

use crate::{
    error::{Error, ErrorKind},
    packages, tool,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Packages of the programs, of their own libraries, and of libraries that must match their build.
const PACKAGES: [&str; 16] = [
    "krb5-kdc",
    "krb5-admin-server",
    "krb5-user",
    "libkadm5srv-mit12",
    "libkadm5clnt-mit12",
    "libkdb5-10",
    "libgssrpc4",
    "libverto1",
    "libverto-libev1",
    "libev4",
    "libkrb5-3",
    "libk5crypto3",
    "libkrb5support0",
    "libgssapi-krb5-2",
    "libkeyutils1",
    "libcom-err2",
];

const PROGRAMS: [&str; 6] = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist", "kdestroy"];

/// Location of the Kerberos programs.
#[derive(Clone, Debug)]
pub(crate) enum Krb5 {
    /// On this machine.
    Installed,
    /// In the cache.
    Unpacked { root: PathBuf, libraries: PathBuf },
}

impl Krb5 {
    pub(crate) fn find(progress: &mut dyn FnMut(&str)) -> Result<Krb5, Error> {
        if PROGRAMS.iter().all(|name| tool::find(name).is_some()) {
            return Ok(Krb5::Installed);
        }
        if !packages::are_supported() {
            let message = "Kerberos (`krb5kdc`, `kadmin.local`, `kinit`) is not installed";
            return Err(Error::new(ErrorKind::Missing, message).hint(
                "install the MIT Kerberos 5 server and client with this system's package manager",
            ));
        }
        let root = packages::fetch("krb5", "MIT Kerberos", &PACKAGES, progress)?;
        let libraries = library_folder(&root).ok_or_else(|| {
            let message = format!("`{}` contains no Kerberos libraries", root.display());
            Error::new(ErrorKind::System, message).hint("remove it to download it again")
        })?;
        Ok(Krb5::Unpacked { root, libraries })
    }

    /// Returns the command of a program, with the path of its libraries.
    pub(crate) fn command(&self, name: &str) -> Command {
        match self {
            Krb5::Installed => Command::new(tool::find(name).unwrap_or_else(|| name.into())),
            Krb5::Unpacked { root, libraries } => {
                let folder = if root.join("usr/bin").join(name).exists() { "bin" } else { "sbin" };
                let mut command = Command::new(root.join("usr").join(folder).join(name));
                command.env("LD_LIBRARY_PATH", libraries);
                command
            }
        }
    }

    /// Returns the directory of the KDC's database module; none for the built-in path.
    pub(crate) fn modules(&self) -> Option<PathBuf> {
        match self {
            Krb5::Installed => None,
            Krb5::Unpacked { libraries, .. } => Some(libraries.join("krb5/plugins/kdb")),
        }
    }
}

/// Returns `usr/lib/x86_64-linux-gnu`, or its name on this architecture.
fn library_folder(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root.join("usr/lib")).ok()?;
    let mut folders = folders.flatten().map(|folder| folder.path());
    folders.find(|folder| folder.join("libkrb5.so.3").exists())
}
