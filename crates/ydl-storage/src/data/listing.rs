//! The files of every input, as they were at submit.

use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};
use ydl_core::{
    JobSpec, TaskId,
    spec::{Input, split},
};
use ydl_proto::version::from_json;

/// The largest listing that is read.
const BYTES_MAX: u64 = 256 << 20;

/// The files of every input of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// In the order of the job file.
    pub inputs: Vec<ListedInput>,
    /// Notes for the user, a sentence each.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The files of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedInput {
    /// Name of the input.
    pub name: String,
    /// True if the source is a single file, which then takes the input's name.
    pub single: bool,
    /// Its files, by name.
    pub files: Vec<ListedFile>,
}

/// A file of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Its name below the input's directory; empty where there is none.
    pub name: String,
    /// Location: a path on this machine, or `hdfs://…`.
    pub url: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in ms since 1970.
    pub modified_ms: u64,
}

impl Listing {
    /// Reads one that was written at submit; a job without inputs has none.
    pub fn read(file: &Path) -> io::Result<Listing> {
        match fs::metadata(file) {
            Ok(about) if about.len() > BYTES_MAX => Err(io::Error::other("it is too large")),
            Ok(_) => Ok(from_json(&fs::read(file)?)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Listing::default()),
            Err(error) => Err(error),
        }
    }

    /// The files of an input.
    pub fn of(&self, name: &str) -> Option<&ListedInput> {
        self.inputs.iter().find(|listed| listed.name == name)
    }

    /// Returns the inputs of a task, each with the task's files. The result is the same for every attempt.
    pub fn of_task<'a>(
        &'a self,
        spec: &'a JobSpec,
        task: &TaskId,
    ) -> Vec<(&'a Input, &'a ListedInput, Vec<&'a ListedFile>)> {
        let Some(role) = spec.role(&task.role) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for input in spec.inputs_of(role) {
            let Some(listed) = self.of(&input.name) else {
                continue;
            };
            let files = match input.form.is_split() {
                false => listed.files.iter().collect(),
                true => {
                    let sizes: Vec<_> = listed.files.iter().map(|f| (&*f.name, f.bytes)).collect();
                    // By the size the role had at submit: who is added later must take nothing from the others.
                    let shares = split(&sizes, role.instances as usize);
                    let share = shares.into_iter().nth(task.index as usize);
                    let share = share.unwrap_or_default().into_iter();
                    share.map(|at| &listed.files[at]).collect()
                }
            };
            all.push((input, listed, files));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_of_another_version_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("inputs.json");
        assert_eq!(Listing::read(&file).unwrap(), Listing::default(), "no inputs");
        ydl_proto::version::write_json(&file, &Listing::default()).unwrap();
        assert_eq!(Listing::read(&file).unwrap(), Listing::default());
        for (text, error) in [
            (
                r#"{"version":2,"sources":[]}"#,
                "unsupported file version 2: this `ydl` reads version 1",
            ),
            (r#"{"inputs":[]}"#, "the file has no version: this `ydl` reads version 1"),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(Listing::read(&file).unwrap_err().to_string(), error);
        }
    }
}
