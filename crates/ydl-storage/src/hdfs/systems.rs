//! File systems that a job uses.

use std::collections::BTreeSet;
use ydl_core::{JobSpec, spec::Environment};

/// Every file system the job touches: where it is staged, what it names, and where its files and outputs are.
pub fn file_systems(spec: &JobSpec, staging: &str) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mut add = |url: &str| {
        if let Some(rest) = url.strip_prefix("hdfs://") {
            let name = rest.split('/').next().unwrap_or_default();
            if !name.is_empty() {
                all.insert(format!("hdfs://{name}"));
            }
        }
    };
    add(staging);
    spec.cluster_options.file_systems.iter().for_each(|url| add(url));
    spec.files.iter().for_each(|file| add(&file.source));
    spec.inputs.iter().for_each(|input| add(&input.source));
    spec.outputs.iter().for_each(|output| add(&output.to));
    spec.cluster_options.checkpoint.iter().for_each(|url| add(url));
    match &spec.environment {
        Environment::Archive(url) => add(url),
        // They are on the submitter's machine, or fetched by the nodes as themselves.
        Environment::System
        | Environment::Directory(_)
        | Environment::Requirements(_)
        | Environment::Pex(_)
        | Environment::Image(_) => {}
    }
    all.into_iter().collect()
}
