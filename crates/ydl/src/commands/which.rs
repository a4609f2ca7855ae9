//! The job that a person means, wherever it is.

use super::cluster;
use crate::{
    cli::Manners,
    jobs::{self, Known},
    mirror::{self, Gateway, KIND, Mirror, Opened},
    report::Report,
};
use std::sync::Arc;
use yarn_native::types::{ApplicationId, ApplicationReport};

/// A job, and as much of it as can be had.
#[derive(Debug)]
pub enum Which {
    /// All of it; on a cluster with the place it is in.
    Whole(Box<Known>, Option<Arc<Mirror>>),
    /// What its cluster tells, and why that is all.
    Only {
        report: Box<ApplicationReport>,
        why: String,
        gateway: Box<Gateway>,
    },
}

impl Which {
    /// The whole job. What only a cluster knows of does for nothing here.
    pub fn whole(self) -> Result<(Box<Known>, Option<Arc<Mirror>>), Report> {
        match self {
            Which::Whole(job, mirror) => Ok((job, mirror)),
            Which::Only { report, why, .. } => {
                let what = format!("the files of `{}` cannot be had: {why}", report.id);
                Err(Report::bad_input(what).hint(format!(
                    "`ydl status {}` shows what its cluster knows",
                    report.id
                )))
            }
        }
    }
}

/// The job of that id or name; without a word the newest. On a cluster, where there is one, before this machine.
pub async fn which(word: Option<&str>, manners: Manners) -> Result<Which, Report> {
    let Some(gateway) = cluster::gateway(manners)? else {
        return here(word);
    };
    let both = manners.cluster.is_none();
    // An id of this machine is nobody else's, and needs no cluster to be up.
    if let (true, Some(word)) = (both, word)
        && let Ok(job) = jobs::find(word)
        && job.id() == word
    {
        return Ok(Which::Whole(Box::new(job), None));
    }
    let found = match word {
        Some(word) => mirror::find(&gateway, word).await,
        None => mirror::newest(&gateway).await,
    };
    match found {
        Ok(Some(report)) => open(gateway, report).await,
        Ok(None) if both => here(word).map_err(|_| nothing(word, " nor on this machine")),
        Ok(None) => Err(nothing(word, "")),
        Err(unreachable) if both => match here(word) {
            Ok(job) if word.is_some() => Ok(job),
            _ => Err(unreachable),
        },
        Err(unreachable) => Err(unreachable),
    }
}

fn here(word: Option<&str>) -> Result<Which, Report> {
    let job = match word {
        Some(word) if word.parse::<ApplicationId>().is_ok() => {
            let what = format!("`{word}` is on a cluster, and there is no Hadoop configuration");
            return Err(Report::bad_input(what).hint("set `HADOOP_CONF_DIR`"));
        }
        Some(word) => jobs::find(word)?,
        None => jobs::newest()?,
    };
    Ok(Which::Whole(Box::new(job), None))
}

fn nothing(word: Option<&str>, beside: &str) -> Report {
    match word {
        Some(word) => Report::bad_input(format!("there is no job `{word}` on the cluster{beside}"))
            .hint("`ydl ls` shows the jobs there are"),
        None => Report::bad_input(format!("there is no job of yours on the cluster{beside}"))
            .hint("start one with `ydl submit`"),
    }
}

async fn open(gateway: Gateway, report: ApplicationReport) -> Result<Which, Report> {
    if report.kind != KIND {
        let what = format!(
            "`{}` is of type `{}`, and no job of ydl",
            report.id, report.kind
        );
        return Err(Report::bad_input(what).hint("`ydl ls` shows the jobs there are"));
    }
    Ok(match Opened::of(&gateway, report).await? {
        Opened::Whole(job, mirror) => Which::Whole(job, Some(mirror)),
        Opened::Only(report, why) => Which::Only {
            report,
            why,
            gateway: Box::new(gateway),
        },
    })
}
