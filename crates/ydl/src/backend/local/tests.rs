use super::*;
use ydl_core::{Ask, RoleName, spec::Resources};

#[tokio::test]
async fn a_process_that_reuses_an_agents_pid_is_not_killed() {
    let root = tempfile::tempdir().unwrap();
    let offer = LocalResources { memory_mib: 1024, vcores: 4, gpus: Vec::new() };
    let secret = Arc::new(Secret::random().unwrap());
    let dir = JobDir::at(root.path());
    let mut local = LocalBackend::new(dir, &offer, String::new(), secret).unwrap();
    local.set_asks(Asks {
        asks: vec![Ask {
            role: RoleName::from("worker"),
            resources: Resources::default(),
            count: 1,
        }],
        avoid: Vec::new(),
    });
    let container = local.containers.keys().next().unwrap().clone();
    let mut other = std::process::Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let now = Identity::of(other.id()).unwrap();
    let reaped = Identity { started: now.started - 1, ..now };
    let held = local.containers.get_mut(&container).unwrap();
    held.agent = Some(reaped);
    local.check();
    local.release(container.clone());
    let killed_for = local.containers[&container].killed_for.clone();
    assert_eq!(
        killed_for,
        Some(ContainerExit::Released),
        "the memory of another process was counted"
    );
    assert!(now.is_alive());
    other.kill().unwrap();
    other.wait().unwrap();
}
