//! Packages of the distribution, downloaded and unpacked without installation, which requires no root.

use crate::{
    cache,
    error::{Error, ErrorKind},
    tool,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns true on Debian and its derivatives.
pub(crate) fn are_supported() -> bool {
    tool::find("apt-get").is_some() && tool::find("dpkg-deb").is_some()
}

/// Returns the directory with the unpacked packages, in the cache's folder `folder`. Downloads them on first use. `title`
/// names them in messages.
pub(crate) fn fetch(
    folder: &str,
    title: &str,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, Error> {
    // Packages depend on the release, and several releases may share the cache.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let recipe = format!("{release}{}{}", env::consts::ARCH, packages.join(" "));
    let folder = cache::root()?.join(folder);
    let unpack = |directory: &Path, progress: &mut dyn FnMut(&str)| {
        progress(&format!("downloading {title} from the distribution's packages"));
        unpack(directory, title, packages, progress)
    };
    cache::entry(&folder, &cache::hash(&recipe), progress, unpack)
}

fn unpack(
    directory: &Path,
    title: &str,
    names: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let packages = directory.join("packages");
    fs::create_dir(&packages).map_err(Error::at("make the directory", &packages))?;
    let download = |options: &[String]| {
        let mut command = Command::new("apt-get");
        // As root, apt would download as user `_apt`, who has no write access here.
        command.args(["-o", "APT::Sandbox::User=root"]).args(options).arg("download");
        tool::run_checked(command.args(names).current_dir(&packages), "", TIMEOUT)
    };
    if download(&[]).is_err() {
        // The package lists are missing or outdated: download them into a private directory.
        progress("downloading the distribution's package lists");
        let lists = directory.join("lists");
        let cache = directory.join("cache");
        for folder in [lists.join("partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&folder).map_err(Error::at("make the directory", &folder))?;
        }
        let options = [
            "-o".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            "-o".to_owned(),
            format!("Dir::Cache={}", cache.display()),
        ];
        let mut update = Command::new("apt-get");
        update.args(["-o", "APT::Sandbox::User=root"]).args(&options).arg("update");
        let outcome = tool::run_checked(&mut update, "", TIMEOUT).and_then(|_| download(&options));
        outcome.map_err(|error| {
            let first = names.iter().take(3).copied().collect::<Vec<_>>();
            Error::new(ErrorKind::Unreachable, format!("cannot download the packages of {title}"))
                .hint(format!("check the network, or install {}", first.join(", ")))
                .log(error.to_string())
        })?;
        for folder in [lists, cache] {
            fs::remove_dir_all(&folder).map_err(Error::at("remove", &folder))?;
        }
    }
    for package in fs::read_dir(&packages).map_err(Error::at("read", &packages))? {
        let package = package.map_err(Error::at("read", &packages))?.path();
        let mut command = Command::new("dpkg-deb");
        tool::run_checked(command.arg("-x").arg(&package).arg(directory), "", TIMEOUT)?;
    }
    fs::remove_dir_all(&packages).map_err(Error::at("remove", &packages))
}
