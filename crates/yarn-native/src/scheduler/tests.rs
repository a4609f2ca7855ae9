//! Tests of the scheduler client against a scripted ResourceManager.

mod allocate;
mod ending;
mod fields;
mod ledger;

use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use crate::proto::yarn::{
    AllocateRequestProto, AllocateResponseProto, RegisterApplicationMasterResponseProto,
};
use crate::rpc::Protocol;
use crate::scheduler::fake::{Fake, FakeReply};
use crate::scheduler::{AllocateRequest, AmRmClient, Ask, Registration};
use crate::types::Resource;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn registered() -> FakeReply {
    FakeReply::message(&RegisterApplicationMasterResponseProto {
        maximum_capability: Some(Resource::new(8192, 4).proto()),
        queue: Some("default".into()),
        ..RegisterApplicationMasterResponseProto::default()
    })
}

fn response(id: i32) -> AllocateResponseProto {
    AllocateResponseProto { response_id: Some(id), ..AllocateResponseProto::default() }
}

/// A ResourceManager that counts like the real one: it repeats the last response for the id before
/// it, and rejects every other id. `lost` selects the calls that lose their response.
#[derive(Default)]
struct Counting {
    calls: u32,
    last: i32,
    applied: Vec<AllocateRequestProto>,
}

impl Counting {
    fn allocate(&mut self, body: &[u8], lost: impl Fn(u32) -> bool) -> FakeReply {
        let request = AllocateRequestProto::decode(body).expect("a request");
        self.calls += 1;
        let id = request.response_id();
        if id == self.last {
            self.last += 1;
            self.applied.push(request);
        } else if id + 1 != self.last {
            let message = format!("Invalid responseId {id}");
            return FakeReply::Exception("InvalidApplicationMasterRequestException", message);
        }
        match lost(self.calls) {
            true => FakeReply::Disconnect,
            false => FakeReply::message(&response(self.last)),
        }
    }
}

fn ask(request_id: i64) -> impl FnOnce() -> AllocateRequest {
    move || AllocateRequest {
        asks: vec![Ask::anywhere(request_id, Resource::new(64, 1), 1)],
        ..AllocateRequest::default()
    }
}

async fn register(fake: &Fake) -> AmRmClient {
    let mut scheduler = AmRmClient::with_channel(fake.channel(Protocol::APPLICATION_MASTER));
    let registration = Registration::new("host");
    let registered = scheduler.register(&registration, soon()).await;
    assert_eq!(registered.expect("registered").queue, "default");
    scheduler
}
