//! Where a master stands with the scheduler: which answer it has seen last, and what is unanswered.
//!
//! An allocate names the answer it follows. Sent again with the same number it is carried out once:
//! the ResourceManager knows the number, and repeats its answer. So a request without an answer is
//! kept as it is and sent again, whatever the master would rather say by now.

use crate::ledger::next_response_id;
use crate::proto::yarn::AllocateRequestProto;
use crate::scheduler::{AllocateRequest, SchedulerError};

#[derive(Debug)]
pub(crate) enum Session {
    /// Not registered, or no more.
    Unregistered,
    /// Everything said has been answered, last with this number.
    Idle { last: i32 },
    /// This was said, and may or may not have been heard.
    InFlight { request: Box<AllocateRequestProto> },
}

impl Session {
    pub(crate) fn is_registered(&self) -> bool {
        !matches!(self, Self::Unregistered)
    }

    /// A registration, also a repeated one, begins to count anew.
    pub(crate) fn on_registered(&mut self) {
        *self = Self::Idle { last: 0 };
    }

    /// What to say now: what is unanswered, or something fresh.
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

    /// The number of the answer to what is unanswered.
    pub(crate) fn expected_response(&self) -> Option<i32> {
        match self {
            Self::InFlight { request } => Some(next_response_id(request.response_id())),
            Self::Unregistered | Self::Idle { .. } => None,
        }
    }

    pub(crate) fn on_response(&mut self, number: i32) {
        *self = Self::Idle { last: number };
    }

    /// What a failure leaves of the session.
    pub(crate) fn on_error(&mut self, error: &SchedulerError) {
        match (error, &*self) {
            (SchedulerError::NotRegistered | SchedulerError::AttemptEnded { .. }, _) => {
                *self = Self::Unregistered;
            }
            // It is kept, and the number stays.
            (SchedulerError::NoResponse(_) | SchedulerError::FinishTimeout, _) => {}
            // A refused request has not advanced the number.
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

    fn refused() -> SchedulerError {
        SchedulerError::Rejected { exception: Exception::new("x", "", None) }
    }

    fn check(session: &mut Session, fresh: f32, id: i32, sent: f32) {
        let said = session.next_request(progress(fresh)).expect("registered");
        assert_eq!((said.response_id(), said.progress()), (id, sent));
    }

    #[test]
    fn what_is_unanswered_is_said_again_as_it_was() {
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
    fn what_is_refused_is_dropped_and_the_number_stays() {
        let mut session = Session::Idle { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&refused());
        check(&mut session, 0.2, 7, 0.2);
    }

    #[test]
    fn a_forgotten_master_registers_and_counts_anew() {
        let mut session = Session::Idle { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&SchedulerError::NotRegistered);
        assert!(!session.is_registered());
        session.on_registered();
        check(&mut session, 0.2, 0, 0.2);
    }
}
