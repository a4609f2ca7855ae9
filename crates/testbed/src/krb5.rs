//! MIT Kerberos: the programs of this machine if they are installed, else unpacked from the
//! distribution's packages, which needs no root.

use crate::{
    failure::{Failure, Kind},
    packages, tool,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Programs first, then the libraries only they need, then those that must be of the same build.
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

/// Where Kerberos is.
#[derive(Clone, Debug)]
pub(crate) enum Krb5 {
    /// On this machine.
    Installed,
    /// In the cache.
    Unpacked { root: PathBuf, libraries: PathBuf },
}

impl Krb5 {
    pub(crate) fn find(progress: &mut dyn FnMut(&str)) -> Result<Krb5, Failure> {
        if PROGRAMS.iter().all(|name| tool::find(name).is_some()) {
            return Ok(Krb5::Installed);
        }
        if !packages::are_known() {
            let what = "Kerberos (`krb5kdc`, `kadmin.local`, `kinit`) is not installed";
            return Err(Failure::new(Kind::Missing, what)
                .hint("install MIT Kerberos 5, server and client, with this system's packages"));
        }
        let root = packages::unpacked("krb5", "MIT Kerberos", &PACKAGES, progress)?;
        let libraries = library_folder(&root).ok_or_else(|| {
            let what = format!("`{}` holds no Kerberos libraries", root.display());
            Failure::new(Kind::Trouble, what).hint("remove it, and it is fetched again")
        })?;
        Ok(Krb5::Unpacked { root, libraries })
    }

    /// A program of it, which finds its libraries.
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

    /// Where the KDC's database module is, if not where it was built to be.
    pub(crate) fn modules(&self) -> Option<PathBuf> {
        match self {
            Krb5::Installed => None,
            Krb5::Unpacked { libraries, .. } => Some(libraries.join("krb5/plugins/kdb")),
        }
    }
}

/// `usr/lib/x86_64-linux-gnu`, or what it is called on this architecture.
fn library_folder(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root.join("usr/lib")).ok()?;
    let mut folders = folders.flatten().map(|folder| folder.path());
    folders.find(|folder| folder.join("libkrb5.so.3").exists())
}
