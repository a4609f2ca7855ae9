//! Packages of the distribution, fetched and unpacked without being installed, which needs no root.

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

/// Whether this is a system whose packages are known.
pub(crate) fn are_known() -> bool {
    tool::find("apt-get").is_some() && tool::find("dpkg-deb").is_some()
}

/// Where those packages are unpacked: on the shelf of that name in the cache, fetched the first time. `what` they are is
/// told to people.
pub(crate) fn unpacked(
    shelf: &str,
    what: &str,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, Failure> {
    // Packages of one release do not run on another, and the cache may be shared by both.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let recipe = format!("{release}{}{}", env::consts::ARCH, packages.join(" "));
    let shelf = cache::root()?.join(shelf);
    let unpack = |place: &Path, progress: &mut dyn FnMut(&str)| {
        progress(&format!("fetching {what} from the distribution's packages"));
        unpack(place, what, packages, progress)
    };
    cache::entry(&shelf, &cache::hash(&recipe), progress, unpack)
}

fn unpack(
    place: &Path,
    what: &str,
    names: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let packages = place.join("packages");
    fs::create_dir(&packages).map_err(Failure::at("make the directory", &packages))?;
    let download = |options: &[String]| {
        let mut command = Command::new("apt-get");
        // As root apt would fetch as another user, who may not write here.
        command.args(["-o", "APT::Sandbox::User=root"]).args(options).arg("download");
        tool::must(command.args(names).current_dir(&packages), "", PATIENCE)
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
        update.args(["-o", "APT::Sandbox::User=root"]).args(&options).arg("update");
        let outcome = tool::must(&mut update, "", PATIENCE).and_then(|_| download(&options));
        outcome.map_err(|failure| {
            let first = names.iter().take(3).copied().collect::<Vec<_>>();
            Failure::new(Kind::Unreachable, format!("the packages of {what} cannot be fetched"))
                .hint(format!("check the network, or install {}", first.join(", ")))
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
