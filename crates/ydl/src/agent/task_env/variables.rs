//! Environment variables of a task's program.

use super::{CheckpointPaths, TaskEnv, local_image, this_program};
use crate::{
    agent::{
        bootstrap::{Bootstrap, MASTER_FILE, PROGRAM_CREDENTIALS, PROGRAM_TOKEN},
        environment::{Activation, compose, prefix, shipped},
        exec::PATH_DEFAULT,
    },
    gpus,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use ydl_core::{AttemptRun, TaskId, spec::Environment};
use ydl_os::env;
use ydl_proto::files::{JobTarget, SubmittedJob};

/// Linux limits a variable to 128 KiB; a larger cluster description is passed in a file only.
const CLUSTER_BYTES_MAX: usize = 100 << 10;

impl TaskEnv {
    /// Returns the node's own variables, then the environment's, then ydl's.
    pub(super) fn variables(
        &self,
        bootstrap: &Bootstrap,
        submitted: &SubmittedJob,
        run: &AttemptRun,
    ) -> Result<BTreeMap<String, String>, String> {
        let to_text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        // In a container the program gets the image's variables, and of this node's those about its GPUs.
        let in_container = local_image(submitted, run).is_some();
        let gpus = gpus::variables(&[]).map(|(name, _)| name);
        let is_inherited = |name: &str| match in_container {
            true => gpus.contains(&name),
            false => !name.starts_with("YDL_"),
        };
        let inherited =
            std::env::vars_os().filter_map(to_text).filter(|(name, _)| is_inherited(name));
        let mut all: BTreeMap<_, _> = inherited.collect();
        if !in_container {
            set_default_path(&mut all);
        }
        if let Some(activation) = self.environment(submitted, &run.task)? {
            activation.apply(&mut all);
        }
        if let Some(own) = self.own_program().filter(|_| !in_container) {
            // Appended, so that another installed `ydl` takes precedence.
            let path = all.entry("PATH".to_owned()).or_default();
            *path += &format!(":{}", own.display());
        }
        // Makes the job's own code importable from any directory.
        let work = self.work().to_string_lossy().into_owned();
        let paths = match all.get("PYTHONPATH").filter(|old| !old.is_empty()) {
            Some(old) => format!("{work}:{old}"),
            None => work,
        };
        all.insert("PYTHONPATH".to_owned(), paths);
        let credentials = self.dir.join(PROGRAM_CREDENTIALS);
        if credentials.exists() {
            let name = env::HADOOP_TOKEN_FILE_LOCATION.to_owned();
            all.insert(name, credentials.to_string_lossy().into_owned());
        }
        if let (JobTarget::Yarn(_), Some(user)) = (&submitted.target, all.get(env::USER).cloned()) {
            // Processes may belong to the NodeManager's user; the files they use belong to the job's.
            all.entry(env::HADOOP_USER_NAME.to_owned()).or_insert(user);
        }
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let CheckpointPaths { dir: checkpoint, url } = self.checkpoint(submitted);
        fs::create_dir_all(&checkpoint)
            .map_err(|e| format!("cannot create `{}`: {e}", checkpoint.display()))?;
        let cluster = serde_json::to_string(&*run.cluster)
            .map_err(|e| format!("cannot write the cluster: {e}"))?;
        let mut set = |name: &str, value: String| {
            all.insert(name.to_owned(), value);
        };
        set(env::JOB, submitted.id.clone());
        set(env::ROLE, run.task.role.to_string());
        set(env::INDEX, run.task.index.to_string());
        set(env::ATTEMPT, run.attempt.to_string());
        set(env::ROUND, run.round.to_string());
        set(env::WORLD_SIZE, run.cluster.process_count().to_string());
        let role = run.cluster.role(run.task.role.as_str());
        let processes = role.map_or(1, |member| member.processes);
        set(env::LOCAL_WORLD_SIZE, processes.to_string());
        set(env::MASTER, format!("https://{}", bootstrap.master));
        let address_written = bootstrap.write_master_address(&self.dir);
        address_written.map_err(|e| format!("cannot write the master's address: {e}"))?;
        set(env::MASTER_FILE, path(self.dir.join(MASTER_FILE)));
        set(env::TOKEN_FILE, path(self.dir.join(PROGRAM_TOKEN)));
        set(env::CERTIFICATE_FILE, path(self.job.certificate_file()));
        set(env::CHECKPOINT, path(checkpoint));
        if let Some(url) = url {
            set(env::CHECKPOINT_URL, url);
        }
        set(env::BINARY, path(this_program()?));
        set(env::CONTAINER, bootstrap.container.to_string());
        let file = self.dir.join("cluster.json");
        fs::write(&file, &cluster)
            .map_err(|e| format!("cannot write `{}`: {e}", file.display()))?;
        set(env::CLUSTER_FILE, path(file));
        if cluster.len() <= CLUSTER_BYTES_MAX {
            set(env::CLUSTER, cluster);
        }
        Ok(all)
    }

    /// Keeps the job's own code importable, after the user's own paths. An empty `PYTHONPATH` stays empty.
    pub(super) fn add_modules(&self, env: &mut BTreeMap<String, String>) {
        if let Some(paths) = env.get_mut("PYTHONPATH").filter(|paths| !paths.is_empty()) {
            *paths += &format!(":{}", self.work().display());
        }
    }

    /// Creates a directory that contains only `ydl`, for scripts that use the job's key-value store. Optional for
    /// programs.
    fn own_program(&self) -> Option<PathBuf> {
        let bin = self.dir.join("bin");
        let link = bin.join("ydl");
        if !link.exists() {
            fs::create_dir_all(&bin).ok()?;
            std::os::unix::fs::symlink(this_program().ok()?, &link).ok()?;
        }
        Some(bin)
    }

    /// Returns the activation of the task's Python environment.
    fn environment(
        &self,
        submitted: &SubmittedJob,
        task: &TaskId,
    ) -> Result<Option<Activation>, String> {
        let shipped = shipped(self.job.path());
        let environment = submitted.spec.environment_of(&task.role);
        let activation = match (environment, &submitted.target) {
            (Environment::System | Environment::Image(_), _) => return Ok(None),
            // On the machine where it was built it is used in place.
            (
                Environment::Directory(from)
                | Environment::Requirements(from)
                | Environment::Pex(from),
                JobTarget::Local(_),
            ) => Activation::in_place(from.path.clone().into()),
            (Environment::Archive(_), _) => Activation::in_place(unpacked_root(&shipped)?),
            (
                Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_),
                JobTarget::Yarn(_),
            ) => compose(&shipped, &prefix(&self.dir))?,
        };
        Ok(Some(activation))
    }
}

/// Sets the default `PATH` if it is empty: a prefix or suffix alone would hide the system's programs.
fn set_default_path(all: &mut BTreeMap<String, String>) {
    let path = all.entry("PATH".to_owned()).or_default();
    if path.is_empty() {
        *path = PATH_DEFAULT.to_owned();
    }
}

/// Returns the directory with `bin` in an unpacked environment. Some archives contain a top-level directory.
fn unpacked_root(dir: &Path) -> Result<PathBuf, String> {
    let has_bin = |dir: &PathBuf| dir.join("bin").is_dir();
    let inside = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut inside: Vec<_> = inside.map(|entry| entry.path()).filter(has_bin).collect();
    inside.sort();
    let mut candidates = std::iter::once(dir.to_owned()).filter(has_bin).chain(inside);
    candidates
        .next()
        .ok_or_else(|| format!("the environment `{}` has no `bin` directory", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_found_at_its_top_or_one_level_down() {
        let dir = tempfile::tempdir().unwrap();
        let error = unpacked_root(dir.path()).unwrap_err();
        assert!(error.ends_with("has no `bin` directory"));
        fs::create_dir_all(dir.path().join("venv-1.2/bin")).unwrap();
        fs::create_dir_all(dir.path().join("other/lib")).unwrap();
        assert_eq!(unpacked_root(dir.path()).unwrap(), dir.path().join("venv-1.2"));
        fs::create_dir(dir.path().join("bin")).unwrap();
        assert_eq!(unpacked_root(dir.path()).unwrap(), dir.path());
    }
}
