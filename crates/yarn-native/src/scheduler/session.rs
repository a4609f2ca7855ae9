//! State of a master's session with the scheduler: the last response id, and a request in flight.
//!
//! An allocate request names the response it follows. Sent again with the same id it is applied
//! once: the ResourceManager recognises the id and repeats its response. So a request without a
//! response is kept and sent again unchanged.

use crate::ledger::next_response_id;
use crate::proto::yarn::AllocateRequestProto;
use crate::scheduler::{AllocateRequest, SchedulerError};

#[derive(Debug)]
pub(crate) enum Session {
    /// Not registered.
    Unregistered,
    /// Every request has a response; the last one had this id.
    Idle { last: i32 },
    /// A request was sent, and may or may not have been processed.
    InFlight { request: Box<AllocateRequestProto> },
}

impl Session {
    pub(crate) fn is_registered(&self) -> bool {
        !matches!(self, Self::Unregistered)
    }

    /// Resets the response id after a registration.
    pub(crate) fn on_registered(&mut self) {
        *self = Self::Idle { last: 0 };
    }

    /// Returns the request in flight, or a fresh one.
    pub(crate) fn next_request(
        &mut self,
        fresh: impl FnOnce() -> AllocateRequest,
    ) -> Result<&AllocateRequestProto, SchedulerError> {
        if let Self::Idle { last } = *self {
            let request = Box::new(fresh().proto(last));
            *self = Self::InFlight { request };
        }
        match self {
            Self::InFlight { request } => Ok(request),
            Self::Unregistered | Self::Idle { .. } => Err(SchedulerError::NotRegistered),
        }
    }

    /// Returns the id of the expected response.
    pub(crate) fn expected_response(&self) -> Option<i32> {
        match self {
            Self::InFlight { request } => Some(next_response_id(request.response_id())),
            Self::Unregistered | Self::Idle { .. } => None,
        }
    }

    pub(crate) fn on_response(&mut self, id: i32) {
        *self = Self::Idle { last: id };
    }

    /// Updates the state after an error.
    pub(crate) fn on_error(&mut self, error: &SchedulerError) {
        match (error, &*self) {
            (SchedulerError::NotRegistered | SchedulerError::AttemptEnded { .. }, _) => {
                *self = Self::Unregistered;
            }
            // The request is kept with its id.
            (SchedulerError::NoResponse(_) | SchedulerError::FinishTimeout, _) => {}
            // A rejected request has not advanced the id.
            (_, Self::InFlight { request }) => {
                *self = Self::Idle { last: request.response_id() };
            }
            (_, Self::Unregistered | Self::Idle { .. }) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Exception, RpcError};

    fn progress(progress: f32) -> impl FnOnce() -> AllocateRequest {
        move || AllocateRequest { progress, ..AllocateRequest::default() }
    }

    fn lost() -> SchedulerError {
        SchedulerError::NoResponse(RpcError::Unanswered {
            method: "allocate",
            address: "rm".into(),
            reason: "cut".into(),
        })
    }

    fn rejected() -> SchedulerError {
        SchedulerError::Rejected { exception: Exception::new("x", "", None) }
    }

    fn check(session: &mut Session, fresh: f32, id: i32, sent: f32) {
        let request = session.next_request(progress(fresh)).expect("registered");
        assert_eq!((request.response_id(), request.progress()), (id, sent));
    }

    #[test]
    fn a_request_without_response_is_resent_unchanged() {
        let mut session = Session::Unregistered;
        assert_eq!(session.next_request(progress(0.1)), Err(SchedulerError::NotRegistered));
        session.on_registered();
        check(&mut session, 0.1, 0, 0.1);
        session.on_error(&lost());
        check(&mut session, 0.2, 0, 0.1);
        session.on_response(1);
        check(&mut session, 0.2, 1, 0.2);
    }

    #[test]
    fn a_rejected_request_is_dropped_and_keeps_the_response_id() {
        let mut session = Session::Idle { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&rejected());
        check(&mut session, 0.2, 7, 0.2);
    }

    #[test]
    fn a_new_registration_resets_the_response_id() {
        let mut session = Session::Idle { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&SchedulerError::NotRegistered);
        assert!(!session.is_registered());
        session.on_registered();
        check(&mut session, 0.2, 0, 0.2);
    }
}
