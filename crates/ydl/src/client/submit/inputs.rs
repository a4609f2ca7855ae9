//! Lists the inputs of a job and resolves the destinations of its outputs, before it starts.

use crate::{
    client::{
        cluster::{ClusterClient, configuration},
        submit::{TRACKING_SECRET, tracking_secret},
    },
    terminal::{self, counted_bytes},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use yarn_native::{namenode::NameNodes, rpc::RpcError};
use ydl_core::{JobSpec, JobSpecBuilder, spec::InputForm};
use ydl_os::report::Report;
use ydl_proto::{
    files::{HadoopConfig, StagedFile},
    version::to_json,
};
use ydl_storage::{
    data::{Destinations, ListedFile, Listing, list_inputs, resolve_existing},
    hdfs::{FileSystems, pairs, url_path},
};

/// Maximum time for listing all sources.
const LIST_MAX: Duration = Duration::from_secs(600);
/// Limits on input data uploaded from this machine. Larger data should be put into HDFS once.
const UPLOAD_BYTES_MAX: u64 = 4 << 30;
const UPLOAD_FILES_MAX: usize = 2000;
/// Number of files whose block locations are queried, and the number of concurrent queries.
const LOCATED_MAX: usize = 500;
const REQUESTS_MAX: usize = 16;
/// Maximum time for these queries, and maximum number of preferred hosts.
const LOCATE_MAX: Duration = Duration::from_secs(20);
const HOSTS_MAX: usize = 64;

/// Lists the inputs of a job on this machine. Returns the job with resolved outputs, and files for its directory.
pub(crate) async fn list_local(
    spec: JobSpec,
) -> Result<(JobSpec, Vec<(&'static str, Vec<u8>)>), Report> {
    let is_hdfs = |text: &String| text.starts_with("hdfs://");
    let mut sources = spec.inputs.iter().map(|input| &input.source);
    let mut destinations = spec.outputs.iter().map(|output| &output.to);
    let config = match sources.any(is_hdfs) || destinations.any(is_hdfs) {
        true => configuration()?,
        false => None,
    };
    let mut extra_files = Vec::new();
    if let Some(secret) = tracking_secret(&spec)? {
        extra_files.push((TRACKING_SECRET, secret));
    }
    let file_systems = match config {
        Some(config) => {
            extra_files.push(("hadoop.json", json(&HadoopConfig { properties: pairs(&config) })?));
            Some(FileSystems::of(config)?)
        }
        None => None,
    };
    let deadline = Instant::now() + LIST_MAX;
    let listing = list_inputs(&spec, file_systems.as_ref(), deadline).await?;
    print_notes(&listing);
    if !listing.inputs.is_empty() {
        extra_files.push(("inputs.json", json(&listing)?));
    }
    let destinations = Destinations { id: None, home: None };
    let spec = resolve_existing(spec, destinations, file_systems.as_ref(), deadline).await?;
    if file_systems.is_none() && spec.outputs.iter().any(|output| is_hdfs(&output.to)) {
        let what = "an output goes to HDFS, and there is no Hadoop configuration";
        let hint = "set `HADOOP_CONF_DIR` to the directory with `core-site.xml`, or name a local directory";
        return Err(Report::bad_input(what).hint(hint));
    }
    Ok((spec, extra_files))
}

fn print_notes(listing: &Listing) {
    for note in &listing.notes {
        terminal::message(format!("note: {note}"));
    }
}

/// Lists the inputs of a job on a cluster.
pub(crate) async fn list_for_cluster(
    spec: &JobSpec,
    cluster: &ClusterClient,
) -> Result<Listing, Report> {
    if spec.inputs.is_empty() {
        return Ok(Listing::default());
    }
    let file_systems = file_systems(cluster);
    let listing = list_inputs(spec, Some(&file_systems), Instant::now() + LIST_MAX).await?;
    print_notes(&listing);
    let local = listing.inputs.iter().flat_map(|input| &input.files);
    let local: Vec<_> = local.filter(|file| !file.url.contains("://")).collect();
    let bytes: u64 = local.iter().map(|file| file.bytes).sum();
    if bytes > UPLOAD_BYTES_MAX || local.len() > UPLOAD_FILES_MAX {
        let what = format!(
            "the local inputs are {} files with {}, more than the limit of {UPLOAD_FILES_MAX} files or {} per job",
            local.len(),
            counted_bytes(bytes),
            counted_bytes(UPLOAD_BYTES_MAX)
        );
        let hint = "put them into HDFS once, for example with `hdfs dfs -put`, and name them there";
        return Err(Report::bad_input(what).hint(hint));
    }
    Ok(listing)
}

/// Resolves the outputs of a job on a cluster.
pub(crate) async fn resolve_outputs(
    spec: JobSpec,
    cluster: &ClusterClient,
    id: &str,
    home: &str,
) -> Result<JobSpec, Report> {
    let destinations = Destinations { id: Some(id), home: Some(home) };
    resolve_existing(spec, destinations, Some(&file_systems(cluster)), Instant::now() + LIST_MAX)
        .await
}

/// Returns the files of a listing that are on this machine.
pub(crate) fn local_files(listing: &Listing) -> Vec<PathBuf> {
    let files = listing.inputs.iter().flat_map(|input| &input.files);
    let local = files.filter(|file| !file.url.contains("://"));
    local.map(|file| PathBuf::from(&file.url)).collect()
}

/// Returns the listing for agents, with local files replaced by their uploaded copies; `None` without inputs.
pub(crate) fn uploaded_listing(
    mut listing: Listing,
    uploaded: Vec<StagedFile>,
) -> Result<Option<Vec<u8>>, Report> {
    if listing.inputs.is_empty() {
        return Ok(None);
    }
    let files = listing.inputs.iter_mut().flat_map(|input| &mut input.files);
    let local = files.filter(|file| !file.url.contains("://"));
    for (file, content) in local.zip(uploaded) {
        file.url = content.url;
        file.bytes = content.bytes;
        file.modified_ms = content.modified_ms;
    }
    json(&listing).map(Some)
}

/// Sets preferred nodes for roles without a placement: those with the blocks of the files that the role's tasks read
/// directly. Failures are ignored, because preferences only improve locality. `nodes` are the cluster's hosts.
pub(crate) async fn prefer_data_hosts(
    spec: JobSpec,
    listing: &Listing,
    cluster: &ClusterClient,
    nodes: &BTreeSet<String>,
) -> JobSpec {
    let mut draft = JobSpecBuilder::from(spec.clone());
    for (n, role) in spec.roles.iter().enumerate() {
        let placement = &role.placement;
        if !placement.nodes.is_empty()
            || !placement.racks.is_empty()
            || placement.node_label.is_some()
        {
            continue;
        }
        let inputs = spec.inputs_of(role);
        let inputs = inputs.filter(|input| input.form != InputForm::Copy);
        let files = inputs.filter_map(|input| listing.of(&input.name));
        let mut files: Vec<&ListedFile> = files.flat_map(|listed| &listed.files).collect();
        files.retain(|file| file.url.starts_with("hdfs://"));
        // The largest files matter most.
        files.sort_by_key(|file| (Reverse(file.bytes), &file.url));
        files.truncate(LOCATED_MAX);
        let count = (role.instances as usize * 3).min(HOSTS_MAX);
        draft.roles[n].placement.nodes = hosts(&files, cluster, nodes, count).await;
    }
    draft.build().unwrap_or(spec)
}

/// Number of bytes stored on each host.
type Hosts = BTreeMap<String, u64>;

/// Returns up to `count` of the cluster's hosts, those with most bytes of the files first.
async fn hosts(
    files: &[&ListedFile],
    cluster: &ClusterClient,
    nodes: &BTreeSet<String>,
    count: usize,
) -> Vec<String> {
    let deadline = Instant::now() + LOCATE_MAX;
    let mut bytes = Hosts::new();
    let mut requests = JoinSet::new();
    for file in files {
        let namenodes =
            NameNodes::from_config(&cluster.config, &file.url, cluster.identity.clone());
        let Ok(namenodes) = namenodes else { continue };
        let path = url_path(&file.url).to_owned();
        requests.spawn(async move { namenodes.block_hosts(&path, deadline).await });
        if requests.len() >= REQUESTS_MAX {
            add_hosts(&mut bytes, requests.join_next().await);
        }
    }
    while let Some(response) = requests.join_next().await {
        add_hosts(&mut bytes, Some(response));
    }
    let mut hosts: Vec<_> = bytes.into_iter().collect();
    hosts.retain(|(host, _)| nodes.contains(host));
    hosts.sort_by_key(|(host, bytes)| (Reverse(*bytes), host.clone()));
    hosts.into_iter().take(count).map(|(host, _)| host).collect()
}

/// Adds the hosts of one file. Failed queries are ignored.
fn add_hosts(bytes: &mut Hosts, response: Option<Result<Result<Hosts, RpcError>, JoinError>>) {
    if let Some(Ok(Ok(hosts))) = response {
        for (host, more) in hosts {
            *bytes.entry(host).or_default() += more;
        }
    }
}

fn file_systems(cluster: &ClusterClient) -> FileSystems {
    FileSystems::new(cluster.config.clone(), cluster.identity.clone())
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, Report> {
    to_json(value).map_err(|error| Report::internal(format!("cannot write JSON: {error}")))
}
