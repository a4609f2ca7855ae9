//! MIT Kerberos: the programs of this machine if they are installed, else unpacked from the
//! distribution's packages, which needs no root.

use crate::{
    cache,
    failure::{Failure, Kind},
    tool,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(300);

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

const PROGRAMS: [&str; 6] = [
    "krb5kdc",
    "kdb5_util",
    "kadmin.local",
    "kinit",
    "klist",
    "kdestroy",
];

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
        if tool::find("apt-get").is_none() || tool::find("dpkg-deb").is_none() {
            let what = "Kerberos (`krb5kdc`, `kadmin.local`, `kinit`) is not installed";
            return Err(Failure::new(Kind::Missing, what)
                .hint("install MIT Kerberos 5, server and client, with this system's packages"));
        }
        // Packages of one release do not run on another, and the cache may be shared by both.
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let recipe = format!("{release}{}{}", env::consts::ARCH, PACKAGES.join(" "));
        let shelf = cache::root()?.join("krb5");
        let root = cache::entry(&shelf, &cache::hash(&recipe), progress, unpack)?;
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
                let folder = if root.join("usr/bin").join(name).exists() {
                    "bin"
                } else {
                    "sbin"
                };
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

fn unpack(place: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Failure> {
    progress("fetching MIT Kerberos from the distribution's packages");
    let packages = place.join("packages");
    fs::create_dir(&packages).map_err(Failure::at("make the directory", &packages))?;
    let download = |options: &[String]| {
        let mut command = Command::new("apt-get");
        // As root apt would fetch as another user, who may not write here.
        command
            .args(["-o", "APT::Sandbox::User=root"])
            .args(options)
            .arg("download");
        tool::must(command.args(PACKAGES).current_dir(&packages), "", PATIENCE)
    };
    if download(&[]).is_err() {
        // The lists of packages are missing or old: fetch them to a place of our own.
        progress("fetching the distribution's lists of packages");
        let lists = place.join("lists");
        let cache = place.join("cache");
        for folder in [lists.join("partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&folder).map_err(Failure::at("make the directory", &folder))?;
        }
        let options = [
            "-o".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            "-o".to_owned(),
            format!("Dir::Cache={}", cache.display()),
        ];
        let mut update = Command::new("apt-get");
        update
            .args(["-o", "APT::Sandbox::User=root"])
            .args(&options)
            .arg("update");
        let outcome = tool::must(&mut update, "", PATIENCE).and_then(|_| download(&options));
        outcome.map_err(|failure| {
            Failure::new(
                Kind::Unreachable,
                "the packages of MIT Kerberos cannot be fetched",
            )
            .hint("check the network, or install krb5-kdc, krb5-admin-server and krb5-user")
            .log(failure.to_string())
        })?;
        for folder in [lists, cache] {
            fs::remove_dir_all(&folder).map_err(Failure::at("remove", &folder))?;
        }
    }
    for package in fs::read_dir(&packages).map_err(Failure::at("read", &packages))? {
        let package = package.map_err(Failure::at("read", &packages))?.path();
        let mut command = Command::new("dpkg-deb");
        tool::must(command.arg("-x").arg(&package).arg(place), "", PATIENCE)?;
    }
    fs::remove_dir_all(&packages).map_err(Failure::at("remove", &packages))
}
