//! Where a master stands with the scheduler: which answer it has seen last, and what is unanswered.
//!
//! An allocate names the answer it follows. Sent again with the same number it is carried out once:
//! the ResourceManager knows the number, and repeats its answer. So a request without an answer is
//! kept as it is and sent again, whatever the master would rather say by now.

use crate::ledger::following;
use crate::proto::yarn::AllocateRequestProto;
use crate::scheduler::{Request, SchedulerError};

#[derive(Debug)]
pub(crate) enum Session {
    /// Not registered, or no more.
    Outside,
    /// Everything said has been answered, last with this number.
    Settled { last: i32 },
    /// This was said, and may or may not have been heard.
    Open { request: Box<AllocateRequestProto> },
}

impl Session {
    pub(crate) fn is_registered(&self) -> bool {
        !matches!(self, Self::Outside)
    }

    /// A registration, also a repeated one, begins to count anew.
    pub(crate) fn on_registered(&mut self) {
        *self = Self::Settled { last: 0 };
    }

    /// What to say now: what is unanswered, or something fresh.
    pub(crate) fn say(
        &mut self,
        fresh: impl FnOnce() -> Request,
    ) -> Result<&AllocateRequestProto, SchedulerError> {
        if let Self::Settled { last } = *self {
            let request = Box::new(fresh().proto(last));
            *self = Self::Open { request };
        }
        match self {
            Self::Open { request } => Ok(request),
            Self::Outside | Self::Settled { .. } => Err(SchedulerError::NotRegistered),
        }
    }

    /// The number of the answer to what is unanswered.
    pub(crate) fn awaits(&self) -> Option<i32> {
        match self {
            Self::Open { request } => Some(following(request.response_id())),
            Self::Outside | Self::Settled { .. } => None,
        }
    }

    pub(crate) fn on_answer(&mut self, number: i32) {
        *self = Self::Settled { last: number };
    }

    /// What a failure leaves of the session.
    pub(crate) fn on_error(&mut self, error: &SchedulerError) {
        match (error, &*self) {
            (SchedulerError::NotRegistered | SchedulerError::Over { .. }, _) => {
                *self = Self::Outside;
            }
            // It is kept, and the number stays.
            (SchedulerError::NoAnswer(_) | SchedulerError::Unfinished, _) => {}
            // A refused request has not advanced the number.
            (_, Self::Open { request }) => {
                *self = Self::Settled { last: request.response_id() };
            }
            (_, Self::Outside | Self::Settled { .. }) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Exception, RpcError};

    fn progress(progress: f32) -> impl FnOnce() -> Request {
        move || Request { progress, ..Request::default() }
    }

    fn lost() -> SchedulerError {
        SchedulerError::NoAnswer(RpcError::Unanswered {
            method: "allocate",
            address: "rm".into(),
            reason: "cut".into(),
        })
    }

    fn refused() -> SchedulerError {
        SchedulerError::Refused { exception: Exception::new("x", "", None) }
    }

    fn check(session: &mut Session, fresh: f32, id: i32, sent: f32) {
        let said = session.say(progress(fresh)).expect("registered");
        assert_eq!((said.response_id(), said.progress()), (id, sent));
    }

    #[test]
    fn what_is_unanswered_is_said_again_as_it_was() {
        let mut session = Session::Outside;
        assert_eq!(session.say(progress(0.1)), Err(SchedulerError::NotRegistered));
        session.on_registered();
        check(&mut session, 0.1, 0, 0.1);
        session.on_error(&lost());
        check(&mut session, 0.2, 0, 0.1);
        session.on_answer(1);
        check(&mut session, 0.2, 1, 0.2);
    }

    #[test]
    fn what_is_refused_is_dropped_and_the_number_stays() {
        let mut session = Session::Settled { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&refused());
        check(&mut session, 0.2, 7, 0.2);
    }

    #[test]
    fn a_forgotten_master_registers_and_counts_anew() {
        let mut session = Session::Settled { last: 7 };
        check(&mut session, 0.1, 7, 0.1);
        session.on_error(&SchedulerError::NotRegistered);
        assert!(!session.is_registered());
        session.on_registered();
        check(&mut session, 0.2, 0, 0.2);
    }
}
