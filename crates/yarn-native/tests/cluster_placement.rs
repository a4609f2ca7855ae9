//! Where containers go: labels and devices, on a real cluster.

mod cluster_support;

use cluster_support::{Master, options, small};
use testbed::{Cluster, Label, Options};
use yarn_native::scheduler::{Ask, Request, SchedulerError};
use yarn_native::types::{ExitStatus, LaunchContext, Resource};

/// The first node has two devices, the second has a label.
fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 2,
        gpus: vec![2],
        labels: vec![Label {
            name: "fast".into(),
            nodes: vec![2],
            exclusive: true,
        }],
        ..options()
    };
    Cluster::shared(options).unwrap_or_else(|failure| panic!("{failure}"))
}

fn host(number: usize) -> String {
    cluster().nodes()[number - 1].address.ip().to_string()
}

#[tokio::test]
async fn a_label_places_containers() {
    let mut master = Master::new(cluster(), "label").await;
    let id = master.fresh_id();
    let ask = Ask {
        label: Some("fast".into()),
        ..Ask::anywhere(id, small(), 2)
    };
    let labelled = master.obtain_by(vec![ask], 2).await;
    assert!(
        labelled.iter().all(|c| c.node.host == host(2)),
        "{labelled:?}"
    );
    let plain = master.obtain(2, small()).await;
    assert!(plain.iter().all(|c| c.node.host == host(1)), "{plain:?}");
    master
        .start(&labelled[0], &LaunchContext::command("exit 5"))
        .await;
    let end = master.end_of(labelled[0].id).await;
    assert_eq!(end.exit, ExitStatus::Exited(5));
    let unknown = Ask {
        label: Some("slow".into()),
        ..Ask::anywhere(99, small(), 1)
    };
    let refused = master
        .beat(Request {
            asks: vec![unknown],
            ..Request::default()
        })
        .await;
    assert!(
        matches!(refused, Err(SchedulerError::Refused { .. })),
        "{refused:?}"
    );
    master.finish().await;
}

#[tokio::test]
async fn a_counted_device_places_containers_and_is_counted() {
    let mut master = Master::new(cluster(), "gpu").await;
    let mut with_gpu = small();
    with_gpu.others.insert("yarn.io/gpu".into(), 1);
    let types = &master.registered.resource_types;
    assert!(
        types.iter().any(|known| known.name == "yarn.io/gpu"),
        "{types:?}"
    );
    let containers = master.obtain(2, with_gpu.clone()).await;
    for container in &containers {
        assert_eq!(container.node.host, host(1));
        assert_eq!(container.resource, with_gpu);
    }
    // A third device there is not; what needs none is granted while that ask waits.
    let asks = vec![Ask::anywhere(77, with_gpu, 1)];
    let request = Request {
        asks,
        ..Request::default()
    };
    master.beat(request).await.expect("a beat");
    assert_eq!(master.obtain(1, Resource::new(64, 1)).await.len(), 1);
    assert_eq!(master.granted, []);
    let request = Request {
        releases: vec![containers[0].id],
        ..Request::default()
    };
    master.beat(request).await.expect("a beat");
    assert_eq!(master.of_request(77, 1).await.len(), 1);
    master.finish().await;
}
