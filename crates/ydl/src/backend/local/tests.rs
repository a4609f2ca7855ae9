use super::*;
use ydl_core::{Ask, RoleName, spec::Resources};

#[tokio::test]
async fn a_process_that_reuses_an_agents_pid_is_not_killed() {
    let root = tempfile::tempdir().unwrap();
    let offer = LocalResources { memory_mib: 1024, vcores: 4, gpus: Vec::new() };
    let secret = Arc::new(Secret::random().unwrap());
    let dir = JobDir::at(root.path());
    let mut local = LocalBackend::new(dir, &offer, false, String::new(), secret).unwrap();
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

#[tokio::test]
async fn memory_is_not_limited_if_the_machine_may_be_oversubscribed() {
    let root = tempfile::tempdir().unwrap();
    let offer = LocalResources { memory_mib: 1, vcores: 1, gpus: Vec::new() };
    for oversubscribe in [false, true] {
        let secret = Arc::new(Secret::random().unwrap());
        let dir = JobDir::at(root.path());
        let new = LocalBackend::new(dir, &offer, oversubscribe, String::new(), secret);
        let mut local = new.unwrap();
        let resources = Resources { memory_mib: 1, vcores: 1, ..Resources::default() };
        let role = RoleName::from("worker");
        local.set_asks(Asks { asks: vec![Ask { role, resources, count: 2 }], avoid: Vec::new() });
        assert_eq!(local.containers.len(), if oversubscribe { 2 } else { 1 });
        // The memory of an agent and of its shim does not count.
        let program =
            "python3 -c 'x = bytes([1]) * (64 << 20); print(1, flush=True); open(0).read()'; true";
        let mut agent = std::process::Command::new("sh")
            .args(["-c", "sh -c \"$0\"; true", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(agent.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let container = local.containers.keys().next().unwrap().clone();
        local.containers.get_mut(&container).unwrap().agent = Identity::of(agent.id());
        local.check();
        let killed_for = local.containers[&container].killed_for.clone();
        assert_eq!(killed_for.is_none(), oversubscribe, "{killed_for:?}");
        // The program ends with its input.
        drop(agent.stdin.take());
        agent.wait().unwrap();
    }
}
