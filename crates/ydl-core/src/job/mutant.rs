//! Deliberate mistakes. The simulation must find each of them; a product build has none.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A mistake to make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            /// No mistake.
            None,
            $($(#[$doc])* $name,)+
        }

        impl Mutant {
            /// Every mistake.
            #[cfg(feature = "mutants")]
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)+];
        }
    };
}

mutants! {
    /// A batch of ended containers is dropped after its first.
    StopsAfterFirstEnded,
    /// A message is matched by the task its container once had.
    FencesByTask,
    /// A container that nobody wants is kept.
    KeepsSurplus,
    /// A repeated grant is taken for a new one.
    RepeatedGrantIsNew,
    /// A silent agent is waited for, for ever.
    NoHeartbeatTimeout,
    /// An agent once quiet stays quiet, whatever it says.
    IgnoresHeartbeatResumed,
    /// A program that is started and never reports is waited for, for ever.
    NoStartTimeout,
    /// An exit from an earlier round ends the attempt of this one.
    LateExitCounts,
    /// An agent ready for an earlier round is taken to be ready for this one.
    AnyRoundIsReady,
    /// The gang starts when all but one are ready.
    StartsWithoutLast,
    /// A gang that cannot be completed keeps what it has, for ever.
    NeverReleasesGang,
    /// A replacement is asked for before the old program is known to be dead.
    ReplacesLiveTasks,
    /// A replacement is asked for before an agent that is cut off has stopped by itself.
    IgnoresPartitionedAgents,
    /// What ran on a lost node is taken to be dead.
    TrustsLostNode,
    /// Those who follow the others and do not end are waited for, for ever.
    NoFollowTimeout,
    /// Success is declared when the first worker is done.
    FirstSuccessIsEnough,
    /// A failure beyond the limit is repaired all the same.
    IgnoresRestartLimit,
    /// Preemption uses up a restart.
    CountsPreemption,
    /// Silence uses up a restart.
    CountsHeartbeatTimeout,
    /// What an agent says of a program killed with its container is believed.
    TrustsAgentExit,
    /// A grant on a node that is avoided is taken.
    UsesExcludedNodes,
    /// The job finishes while containers are still held.
    FinishesEarly,
    /// Services are not stopped when the job is over.
    LeavesServicesRunning,
    /// A new round keeps the results of the old one.
    KeepsOldSuccesses,
    /// After the master's death containers that are gone are still counted on.
    KeepsLostContainers,
    /// After the master's death containers that nobody holds are left alone.
    KeepsUnownedContainers,
    /// Deadlines that passed while there was no master count.
    KeepsOldTimeouts,
    /// An agent that stopped because it had no master is blamed for it.
    ChargesOrphans,
    /// A success whose outputs were lost is a success.
    IgnoresUploadFailure,
    /// A round counts on newcomers who are not there yet.
    CountsOnNewcomers,
    /// Who fails because the cluster took a peer uses up a restart.
    ChargesPeerFailures,
    /// Who fails because the cluster took a peer fails the job when no restart is left.
    FailsJobOnPeerFailure,
    /// A round begins with fewer than its least.
    StartsBelowMinimum,
    /// A round is interrupted for every newcomer, as it comes.
    NeverSettles,
    /// Newcomers interrupt those who are almost done.
    InterruptsFinishedRole,
    /// Newcomers of one role interrupt others that are done.
    InterruptsOtherRoles,
    /// A role that is to begin after others does not wait for them.
    IgnoresDependencies,
    /// Those who are missing are not asked for again until all are.
    StopsAskingForMissing,
    /// Who is lost when nobody needs it any more starts again, and others with it.
    RestartsUnneededTasks,
    /// A round begins while somebody runs whom its role has dropped.
    IgnoresDroppedTasks,
    /// The node of one that failed because the cluster took a peer is held to account.
    ChargesPeerFailureNodes,
    /// Those who are told go on without one whose outputs are lost.
    ContinuesWithoutFailedUpload,
    /// A role that is made smaller keeps newcomers and drops those who run.
    DropsRunningTasks,
    /// A role that is made smaller does not see that it is too small.
    SkipsRecount,
    /// Of attempts that are given up their peers are told nothing: only of those whose programs are heard to end.
    HidesLostAttempts,
    /// Those who go on are told of others who are done as if they were still there.
    WaitsForFinishedTasks,
    /// What stands beside the job asks for a container before the job has what it needs.
    StartsSidecarsFirst,
}

impl Mutant {
    /// Whether this is the mistake being made. Always false in a product build, and compiled away.
    pub(super) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self == mutant
    }
}
