//! The local backend, driven like by a master. It kills and reaps all children of its process that it did not start,
//! so each test has its own process.

use std::{path::Path, sync::Arc, time::Duration};
use tokio::time::timeout;
use ydl::{backend::Backend, backend::local::LocalBackend};
use ydl_core::{Ask, Asks, ContainerId, Event, Outcome, RoleName, spec::Resources};
use ydl_net::secret::Secret;
use ydl_proto::files::{JobDir, LocalResources};
use ydl_testkit::run_in_own_process;

fn local(root: &Path, job: &str) -> LocalBackend {
    let offer = LocalResources {
        memory_mib: 1024,
        vcores: 4,
        gpus: vec![format!("backend-{}", std::process::id())],
    };
    let dir = JobDir::at(root.join("jobs").join(job));
    let secret = Arc::new(Secret::random().unwrap());
    LocalBackend::new(dir, &offer, false, "127.0.0.1:1".to_owned(), secret).unwrap()
}

fn ask(count: u32, gpus: u32) -> Asks {
    let resources = Resources { memory_mib: 256, vcores: 1, gpus, ..Resources::default() };
    let role = RoleName::from("worker");
    Asks { asks: vec![Ask { role, resources, count }], avoid: Vec::new() }
}

async fn granted(local: &mut LocalBackend) -> Vec<ContainerId> {
    let granted = async {
        loop {
            if let Ok(Event::Granted { grants }) = local.next().await {
                return grants.into_iter().map(|grant| grant.container).collect();
            }
        }
    };
    timeout(Duration::from_secs(10), granted).await.unwrap()
}

#[test]
fn a_gpu_released_by_another_job_is_granted() {
    let body = async || {
        let root = tempfile::tempdir().unwrap();
        let (mut one, mut two) = (local(root.path(), "one"), local(root.path(), "two"));
        one.set_asks(ask(2, 1));
        let held = granted(&mut one).await;
        assert_eq!(held.len(), 1, "more than one device");
        two.set_asks(ask(1, 1));
        let early = timeout(Duration::from_millis(10), granted(&mut two)).await;
        assert!(early.is_err(), "an assigned device was granted again");
        one.set_asks(Asks::default());
        one.release(held[0].clone());
        assert_eq!(granted(&mut two).await.len(), 1);
    };
    run_in_own_process("backend::a_gpu_released_by_another_job_is_granted", body, |command| {
        command
    });
}

#[test]
fn closing_grants_no_released_resources() {
    let body = async || {
        let root = tempfile::tempdir().unwrap();
        let mut local = local(root.path(), "job");
        local.set_asks(ask(9, 0));
        assert_eq!(granted(&mut local).await.len(), 4);
        let closed = timeout(Duration::from_secs(5), local.close(&Outcome::Succeeded)).await;
        assert!(closed.is_ok(), "closing timed out");
    };
    run_in_own_process("backend::closing_grants_no_released_resources", body, |command| command);
}
