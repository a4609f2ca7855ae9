use super::*;
use ydl_core::{Ask, RoleName, spec::Resources};

#[tokio::test]
async fn a_process_that_took_the_pid_of_an_agent_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let offer = Offer { memory_mib: 1024, vcores: 4, gpus: Vec::new() };
    let secret = Arc::new(Secret::random().unwrap());
    let dir = JobDir::at(root.path());
    let mut local = Local::new(dir, &offer, String::new(), secret).unwrap();
    local.want(Asks {
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
    local.look();
    local.release(container.clone());
    let over = local.containers[&container].over.clone();
    assert_eq!(over, Some(ContainerExit::Released), "its memory is not the agent's");
    assert!(now.is_alive());
    other.kill().unwrap();
    other.wait().unwrap();
}
