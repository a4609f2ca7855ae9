//! Startup of an agent from its container's directory.

use super::{
    Agent, master_link::MasterLink, requests::RequestPermits, tokens::TokenRefresh, upload::Uploads,
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
    pub(in crate::agent) async fn new(dir: PathBuf) -> Result<Agent, String> {
        let told = |what: &str, why: &dyn std::fmt::Display| format!("cannot read {what}: {why}");
        let mut setting =
            Bootstrap::read(&dir).map_err(|e| told("the agent's bootstrap file", &e))?;
        let job = JobDir::at(&setting.job);
        let submitted = std::fs::read(job.submitted_file()).map_err(|e| told("the job", &e))?;
        let submitted: SubmittedJob = from_json(&submitted).map_err(|e| told("the job", &e))?;
        let pem = std::fs::read(job.certificate_file()).map_err(|e| told("the certificate", &e))?;
        let pin = Pin::of_pem(&pem).ok_or("the master's certificate is malformed")?;
        let token =
            Token::read(&dir.join(bootstrap::AGENT_TOKEN)).map_err(|e| told("the token", &e))?;
        // Meanwhile the master treats the container as not started, as while its node localizes files.
        environment::unpack(&submitted, job.path(), &dir);
        let mut reach = MasterLink::new(&setting, pin, token)?;
        // On a cluster, logs are shipped to the job's directory, and the master may move.
        let staging = setting.staging.as_deref().map(JobLayout::at);
        let mut carrier = None;
        if let Some(staging) = &staging {
            let started = HdfsWorker::start(job.clone(), submitted.spec.task_count());
            let started = started.map_err(|e| format!("cannot start: {e}"))?;
            let started = Arc::new(started);
            let container = setting.container.as_str().parse::<yarn_native::types::ContainerId>();
            let attempt = container.map_or(0, |id| u32::try_from(id.attempt.number).unwrap_or(0));
            reach.look_out(Arc::clone(&started), staging.clone(), attempt);
            carrier = Some(started);
        }
        let devices = Devices::find(setting.gpus).await;
        let meter = Meter::new(std::process::id(), devices.visible().as_deref());
        let meter = match staging {
            // Measured as the node does.
            Some(_) => meter,
            None => meter.of_programs(),
        };
        let mut unfit = staging.as_ref().and_then(|_| image::ignored_image());
        let spec = &submitted.spec;
        match spec.cluster_options.network.as_deref().map(network::address_in) {
            Some(Ok(address)) => setting.host = address,
            Some(Err(why)) => unfit = unfit.or(Some(why)),
            None => {}
        }
        let saved = spec.cluster_options.checkpoint.iter();
        let saved = saved.filter(|to| to.starts_with("hdfs://")).count() > 0;
        let far = |output: &Output| output.every.is_some() || output.to.starts_with("hdfs://");
        if carrier.is_none() && (saved || spec.outputs.iter().any(far)) {
            let started = HdfsWorker::start(job.clone(), spec.task_count());
            let started = started.map_err(|e| format!("cannot start: {e}"))?;
            carrier = Some(Arc::new(started));
        }
        Ok(Agent {
            tokens: TokenRefresh::new(&dir),
            surroundings: TaskEnv::new(dir, job),
            meter,
            devices,
            unfit,
            setting,
            submitted,
            reach,
            staging,
            carrier,
            turns: RequestPermits::default(),
            order: None,
            told: Default::default(),
            seen: 0,
            last_request: 0,
            reports: Vec::new(),
            fetch: None,
            tried: None,
            fetched: false,
            hold: None,
            ready: None,
            starting: None,
            running: None,
            ran: 0,
            saving: None,
            saved: false,
            filling: None,
            filled: None,
            keeping: Uploads::default(),
            leaves: None,
            signalled: false,
            cut_off: false,
            usage: None,
        })
    }
}
