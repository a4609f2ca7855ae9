//! How an agent begins: with what it finds in its container's directory.

use super::Agent;
use crate::{
    agent::{
        measure::Meter,
        setting::{self, Setting},
        surroundings::Surroundings,
    },
    jobs::{JobDir, Submitted},
    wire::{client::Client, secret::Token, tls::Pin},
};
use std::path::PathBuf;

impl Agent {
    pub(in crate::agent) fn new(dir: PathBuf) -> Result<Agent, String> {
        let told = |what: &str, why: &dyn std::fmt::Display| format!("cannot read {what}: {why}");
        let setting = Setting::read(&dir).map_err(|e| told("the agent's setting", &e))?;
        let job = JobDir::at(&setting.job);
        let submitted = std::fs::read(job.submitted_file()).map_err(|e| told("the job", &e))?;
        let submitted: Submitted =
            serde_json::from_slice(&submitted).map_err(|e| told("the job", &e))?;
        let pem = std::fs::read(job.certificate_file()).map_err(|e| told("the certificate", &e))?;
        let pin = Pin::of_pem(&pem).ok_or("the master's certificate is malformed")?;
        let token =
            Token::read(&dir.join(setting::AGENT_TOKEN)).map_err(|e| told("the token", &e))?;
        let client = Client::new(setting.master.clone(), pin, &token).map_err(|e| e.to_string())?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Ok(Agent {
            surroundings: Surroundings::new(dir, job),
            meter: Meter::new(std::process::id(), visible.as_deref()),
            setting,
            submitted,
            client,
            order: None,
            seen: 0,
            reports: Vec::new(),
            hold: None,
            ready: None,
            starting: None,
            running: None,
            ran: 0,
            saving: None,
            saved: false,
            signalled: false,
            cut_off: false,
            usage: None,
        })
    }
}
