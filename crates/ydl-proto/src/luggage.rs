//! The small files that every container of a job on a cluster has. They travel among its credentials: a node then has
//! nothing to fetch for a job whose other files it knows, and a container starts as soon as a process can.

use std::{collections::BTreeMap, fs, io, path::Path};

/// The name under which they travel.
pub const LUGGAGE: &str = "ydl.files";
/// The files that may be in it.
pub const CARRIED: [&str; 4] = ["job.json", "certificate.pem", "hadoop.json", "inputs.json"];
/// More goes by HDFS: a ResourceManager may keep what is submitted in ZooKeeper, which takes a megabyte of it.
const BYTES_MAX: usize = 256 << 10;

/// Texts of files by their names, to be carried; nothing if they are too large for that.
pub fn pack(files: &BTreeMap<&str, &str>) -> Option<Vec<u8>> {
    let bytes = serde_json::to_vec(files).ok()?;
    (bytes.len() <= BYTES_MAX).then_some(bytes)
}

/// Lays them out in a container's directory.
pub fn unpack(bytes: &[u8], dir: &Path) -> io::Result<()> {
    let files: BTreeMap<String, String> = serde_json::from_slice(bytes)?;
    for (name, text) in files {
        // Write no other file: the content is untrusted.
        if CARRIED.contains(&name.as_str()) {
            fs::write(dir.join(name), text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_laid_out_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("job.json", "{}"), ("../outside", "no"), ("other", "no")];
        let bytes = pack(&files.into()).expect("a little");
        unpack(&bytes, dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("job.json")).unwrap(), "{}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(unpack(b"{", dir.path()).is_err());
        let large = "x".repeat(BYTES_MAX);
        assert_eq!(pack(&[("job.json", large.as_str())].into()), None);
    }
}
