//! The calls of MLflow's REST interface that a master makes. Their answers are looked at before they are believed.

use super::server::{Failure, Server};
use hyper::{Method, body::Bytes};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use ydl_net::text::percent;

/// Limits of MLflow per call.
pub const METRICS_MAX: usize = 500;
pub const PARAMS_MAX: usize = 100;
/// Letters of an id that is believed.
const ID_MAX: usize = 64;

/// A run that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    pub experiment: String,
    /// Path of its artifacts on a server that proxies them.
    pub artifacts: Option<String>,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub key: String,
    pub value: Value,
    pub timestamp: u64,
    pub step: u64,
}

impl Server {
    /// The id of the experiment of that name, which is made if there is none.
    pub async fn experiment(&self, name: &str) -> Result<String, Failure> {
        if let Some(id) = self.experiment_if_there(name).await? {
            return Ok(id);
        }
        match self.tell("experiments/create", &json!({ "name": name })).await {
            Ok(made) => id(&made["experiment_id"]),
            // Another client created it first.
            Err(Failure::Refused { code, .. }) if code == "RESOURCE_ALREADY_EXISTS" => {
                let found = self.experiment_if_there(name).await?;
                found.ok_or_else(|| Failure::Nonsense("an experiment is there and not".to_owned()))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn experiment_if_there(&self, name: &str) -> Result<Option<String>, Failure> {
        let path =
            format!("/api/2.0/mlflow/experiments/get-by-name?experiment_name={}", percent(name));
        match self.call(Method::GET, &path, Bytes::new(), JSON).await {
            Ok(found) => {
                let experiment = &found["experiment"];
                if experiment["lifecycle_stage"] == "deleted" {
                    return Err(Failure::Refused {
                        status: 200,
                        code: "deleted".to_owned(),
                        what: format!("the experiment `{name}` was deleted there"),
                    });
                }
                id(&experiment["experiment_id"]).map(Some)
            }
            Err(Failure::Refused { status: 404, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The run with that tag, if there is one: an earlier master has made it.
    pub async fn run_with(
        &self,
        experiment: &str,
        tag: (&str, &str),
    ) -> Result<Option<Run>, Failure> {
        let wish = json!({
            "experiment_ids": [experiment],
            "filter": format!("tags.`{}` = '{}'", tag.0, tag.1),
            "max_results": 1,
        });
        let found = self.tell("runs/search", &wish).await?;
        let Some(found) = found["runs"].get(0) else {
            return Ok(None);
        };
        let tags = found["data"]["tags"].as_array();
        let mut tags = tags.into_iter().flatten();
        match tags.any(|it| it["key"] == tag.0 && it["value"] == tag.1) {
            true => run(found, experiment).map(Some),
            false => Err(Failure::Nonsense("a run that was not requested".to_owned())),
        }
    }

    /// A new run.
    pub async fn make_run(
        &self,
        experiment: &str,
        name: &str,
        began_ms: u64,
        tags: &BTreeMap<String, String>,
    ) -> Result<Run, Failure> {
        let wish = json!({
            "experiment_id": experiment,
            "run_name": name,
            "start_time": began_ms,
            "tags": pairs(tags.iter()),
        });
        let made = self.tell("runs/create", &wish).await?;
        run(&made["run"], experiment)
    }

    /// Logs parameters, at most [`PARAMS_MAX`].
    pub async fn params(&self, run: &Run, params: &[(String, String)]) -> Result<(), Failure> {
        let params = pairs(params.iter().map(|(key, value)| (key, value)));
        let batch = json!({ "run_id": run.id, "params": params });
        self.tell("runs/log-batch", &batch).await.map(drop)
    }

    /// Logs metrics, at most [`METRICS_MAX`].
    pub async fn metrics(&self, run: &Run, rows: &[Row]) -> Result<(), Failure> {
        let batch = json!({ "run_id": run.id, "metrics": rows });
        self.tell("runs/log-batch", &batch).await.map(drop)
    }

    /// Updates the status of a run.
    pub async fn status(
        &self,
        run: &Run,
        status: &str,
        ended_ms: Option<u64>,
    ) -> Result<(), Failure> {
        let mut update = json!({ "run_id": run.id, "status": status });
        if let Some(ended_ms) = ended_ms {
            update["end_time"] = ended_ms.into();
        }
        self.tell("runs/update", &update).await.map(drop)
    }

    /// Something to look at later. `place` is the run's own.
    pub async fn artifact(&self, place: &str, name: &str, bytes: Bytes) -> Result<(), Failure> {
        let path = format!("/api/2.0/mlflow-artifacts/artifacts/{place}/{name}");
        let sent = self.call(Method::PUT, &path, bytes, "application/octet-stream");
        sent.await.map(drop)
    }

    async fn tell(&self, path: &str, what: &Value) -> Result<Value, Failure> {
        let path = format!("/api/2.0/mlflow/{path}");
        let body = Bytes::from(what.to_string());
        self.call(Method::POST, &path, body, JSON).await
    }
}

const JSON: &str = "application/json";

fn pairs<'a>(all: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<Value> {
    all.map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// An id becomes a part of paths and variables: it has nothing in it that means something there.
fn id(value: &Value) -> Result<String, Failure> {
    let plain = |text: &&str| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        (1..=ID_MAX).contains(&text.len()) && text.chars().all(fits)
    };
    let found = value.as_str().filter(plain).map(str::to_owned);
    found.ok_or_else(|| Failure::Nonsense("an answer without a proper id".to_owned()))
}

fn run(value: &Value, experiment: &str) -> Result<Run, Failure> {
    let info = &value["info"];
    let at = match &info["run_id"] {
        Value::Null => &info["run_uuid"],
        other => other,
    };
    let place = info["artifact_uri"].as_str();
    let place = place.and_then(|uri| uri.strip_prefix("mlflow-artifacts:"));
    let place = place.map(|path| {
        // Perhaps with the server's own name in it.
        let path = match path.strip_prefix("//") {
            Some(named) => named.split_once('/').map_or("", |(_, path)| path),
            None => path,
        };
        path.trim_matches('/').to_owned()
    });
    let plain = |path: &String| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        path.len() <= 512 && path.chars().all(fits) && !path.split('/').any(|part| part == "..")
    };
    Ok(Run { id: id(at)?, experiment: experiment.to_owned(), artifacts: place.filter(plain) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_believed_if_its_id_is_plain() {
        let said = |id: &str, place: &str| {
            let info = json!({ "run_id": id, "artifact_uri": place });
            run(&json!({ "info": info }), "1")
        };
        let found = said("ab1", "mlflow-artifacts:/1/ab1/artifacts").unwrap();
        assert_eq!(found.artifacts.as_deref(), Some("1/ab1/artifacts"));
        let found = said("ab1", "mlflow-artifacts://host:80/1/ab1/artifacts").unwrap();
        assert_eq!(found.artifacts.as_deref(), Some("1/ab1/artifacts"));
        for place in
            ["s3://bucket/x", "/mlruns/1", "mlflow-artifacts:/../x", "mlflow-artifacts:/a b"]
        {
            assert_eq!(said("ab1", place).unwrap().artifacts, None, "{place}");
        }
        for id in ["", "a/b", "a b", "../x", "a\nB=1", &"x".repeat(65)] {
            assert!(said(id, "").is_err(), "{id}");
        }
        let old = json!({ "info": { "run_uuid": "cd2" } });
        assert_eq!(run(&old, "1").unwrap().id, "cd2");
    }
}
