//! Startup of an agent from its container's directory.

use super::{
    Agent, master_connection::MasterConnection, requests::RequestPermits, tokens::TokenRefresh,
    upload::Uploads,
};
use crate::agent::{
    bootstrap::{self, Bootstrap},
    devices::Devices,
    environment, image,
    measure::Meter,
    network,
    shipping::HdfsWorker,
    task_env::TaskEnv,
};
use std::{path::PathBuf, sync::Arc};
use ydl_core::spec::Output;
use ydl_net::{secret::Token, tls::Pin};
use ydl_proto::{
    files::{JobDir, SubmittedJob},
    version::from_json,
};
use ydl_storage::hdfs::JobLayout;

impl Agent {
    pub(in crate::agent) async fn new(
        dir: PathBuf,
        container_logs: Option<PathBuf>,
    ) -> Result<Agent, String> {
        let unreadable =
            |what: &str, why: &dyn std::fmt::Display| format!("cannot read {what}: {why}");
        let mut bootstrap =
            Bootstrap::read(&dir).map_err(|e| unreadable("the agent's bootstrap file", &e))?;
        let job = JobDir::at(&bootstrap.job);
        let submitted =
            std::fs::read(job.submitted_file()).map_err(|e| unreadable("the job", &e))?;
        let submitted: SubmittedJob =
            from_json(&submitted).map_err(|e| unreadable("the job", &e))?;
        let pem =
            std::fs::read(job.certificate_file()).map_err(|e| unreadable("the certificate", &e))?;
        let pin = Pin::of_pem(&pem).ok_or("the master's certificate is malformed")?;
        let token = Token::read(&dir.join(bootstrap::AGENT_TOKEN))
            .map_err(|e| unreadable("the token", &e))?;
        // No heartbeat is sent while this unpacks; the join timeout covers it.
        environment::unpack(&submitted, job.path(), &dir);
        let mut master = MasterConnection::new(&bootstrap, pin, token)?;
        // On a cluster, logs are shipped to the job's directory, and the master may move.
        let staging = bootstrap.staging.as_deref().map(JobLayout::at);
        let mut worker = None;
        if let Some(staging) = &staging {
            let started = HdfsWorker::start(job.clone(), submitted.spec.task_count());
            let started = started.map_err(|e| format!("cannot start: {e}"))?;
            let started = Arc::new(started);
            let container = bootstrap.container.as_str().parse::<yarn_native::types::ContainerId>();
            let attempt = container.map_or(0, |id| u32::try_from(id.attempt.number).unwrap_or(0));
            master.watch_for_successor(Arc::clone(&started), staging.clone(), attempt);
            worker = Some(started);
        }
        let Bootstrap { container, master: address, host, .. } = &bootstrap;
        tracing::info!(
            "agent of container `{container}` on `{host}`; its master is at `{address}`"
        );
        let devices = Devices::find(bootstrap.gpus).await;
        let meter = Meter::new(std::process::id(), devices.visible().as_deref());
        let meter = match staging {
            // Measured as the node does.
            Some(_) => meter,
            None => meter.of_programs(),
        };
        let mut unfit_reason = staging.as_ref().and_then(|_| image::ignored_image());
        let spec = &submitted.spec;
        match spec.cluster_options.network.as_deref().map(network::address_in) {
            Some(Ok(address)) => bootstrap.host = address,
            Some(Err(why)) => unfit_reason = unfit_reason.or(Some(why)),
            None => {}
        }
        let has_hdfs_checkpoint = spec.cluster_options.checkpoint.iter();
        let has_hdfs_checkpoint =
            has_hdfs_checkpoint.filter(|to| to.starts_with("hdfs://")).count() > 0;
        let is_remote =
            |output: &Output| output.every.is_some() || output.to.starts_with("hdfs://");
        if worker.is_none() && (has_hdfs_checkpoint || spec.outputs.iter().any(is_remote)) {
            let started = HdfsWorker::start(job.clone(), spec.task_count());
            let started = started.map_err(|e| format!("cannot start: {e}"))?;
            worker = Some(Arc::new(started));
        }
        Ok(Agent {
            tokens: TokenRefresh::new(&dir),
            task_env: TaskEnv::new(dir, job, container_logs),
            meter,
            devices,
            unfit_reason,
            bootstrap,
            submitted,
            master,
            staging,
            hdfs_worker: worker,
            request_permits: RequestPermits::default(),
            order: None,
            program_env: Default::default(),
            order_number: 0,
            last_request: 0,
            reports: Vec::new(),
            fetch: None,
            latest_fetch: None,
            inputs_complete: false,
            port_reservation: None,
            ready: None,
            starting: None,
            running: None,
            last_round: 0,
            finishing: None,
            finished: false,
            restore: None,
            restored_round: None,
            uploads: Uploads::default(),
            exits_at: None,
            is_terminating: false,
            cut_off: false,
            usage: None,
        })
    }
}
