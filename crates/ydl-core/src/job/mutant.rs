//! Injected faults. The simulation must detect each of them; a release build has none.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A fault to inject.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            /// No fault.
            None,
            $($(#[$doc])* $name,)+
        }

        impl Mutant {
            /// All faults.
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
    /// A surplus container is kept.
    KeepsSurplus,
    /// A repeated grant is taken for a new one.
    RepeatedGrantIsNew,
    /// The heartbeat timeout is never applied.
    NoHeartbeatTimeout,
    /// Resumed heartbeats are ignored.
    IgnoresHeartbeatResumed,
    /// The start timeout is never applied.
    NoStartTimeout,
    /// An exit from an earlier round ends the attempt of this one.
    LateExitCounts,
    /// An agent ready for an earlier round is taken to be ready for this one.
    AnyRoundIsReady,
    /// The gang starts when all but one are ready.
    StartsWithoutLast,
    /// An incomplete gang never releases its containers.
    NeverReleasesGang,
    /// A replacement is asked for before the old program is known to have ended.
    ReplacesLiveTasks,
    /// A replacement is asked for before a partitioned agent has stopped by itself.
    IgnoresPartitionedAgents,
    /// Programs on a lost node are assumed to have ended.
    TrustsLostNode,
    /// The follow timeout is never applied.
    NoFollowTimeout,
    /// Success is declared when the first worker is done.
    FirstSuccessIsEnough,
    /// A failure beyond the restart limit is retried.
    IgnoresRestartLimit,
    /// Preemption uses up a restart.
    CountsPreemption,
    /// A heartbeat timeout uses up a restart.
    CountsHeartbeatTimeout,
    /// The agent's report about a program killed with its container is trusted.
    TrustsAgentExit,
    /// A grant on an excluded node is accepted.
    UsesExcludedNodes,
    /// The job finishes while containers are still held.
    FinishesEarly,
    /// Services are not stopped when the job is over.
    LeavesServicesRunning,
    /// A new round keeps the results of the old one.
    KeepsOldSuccesses,
    /// After a recovery lost containers are kept.
    KeepsLostContainers,
    /// After a recovery unowned containers are not released.
    KeepsUnownedContainers,
    /// Timeouts that expired without a master count.
    KeepsOldTimeouts,
    /// An agent that stopped for lack of a master is charged.
    ChargesOrphans,
    /// A failed upload counts as a success.
    IgnoresUploadFailure,
    /// A round includes newcomers that are not ready.
    CountsOnNewcomers,
    /// A failure that follows from the loss of a peer uses up a restart.
    ChargesPeerFailures,
    /// A failure that follows from the loss of a peer fails the job when no restart is left.
    FailsJobOnPeerFailure,
    /// A round starts below its minimum size.
    StartsBelowMinimum,
    /// A round is interrupted for every newcomer without a settle time.
    NeverSettles,
    /// Newcomers interrupt a role that is almost done.
    InterruptsFinishedRole,
    /// Newcomers of one role interrupt another role that is almost done.
    InterruptsOtherRoles,
    /// A role does not wait for its dependencies.
    IgnoresDependencies,
    /// Missing tasks of an elastic role are not asked for.
    StopsAskingForMissing,
    /// The loss of a task that is not needed restarts it and its peers.
    RestartsUnneededTasks,
    /// A round starts while a dropped task of its roles still runs.
    IgnoresDroppedTasks,
    /// The node of a task that failed with a lost peer is charged.
    ChargesPeerFailureNodes,
    /// Notified tasks continue without a task whose upload failed.
    ContinuesWithoutFailedUpload,
    /// Scaling down keeps newcomers and drops running tasks.
    DropsRunningTasks,
    /// Scaling down does not check the minimum size.
    SkipsRecount,
    /// Attempts that are given up are not reported to their peers.
    HidesLostAttempts,
    /// Finished tasks are reported to peers as members.
    WaitsForFinishedTasks,
    /// The failure that is reported first is taken for the cause.
    KeepsReportedCause,
    /// A sidecar asks for a container before the job has started.
    StartsSidecarsFirst,
    /// A role waits for tasks that were stopped on request.
    WaitsForStoppedTasks,
    /// A role that grows restarts tasks that were stopped on request.
    RestartsStoppedTasks,
    /// A task that is retried loses its own variables.
    ForgetsTaskVariables,
    /// A request to end a job that is ending decides its outcome again.
    EndsTwice,
    /// Replicas that are told to stop stay in the routes.
    RoutesToStopped,
    /// A removed replica is stopped with its requests.
    StopsWithoutDrain,
    /// A replica is stopped while gateways have older routes.
    IgnoresRouteVersion,
    /// A replica with an endless request is never stopped.
    IgnoresDrainTimeout,
    /// A change of the routes keeps their version.
    KeepsRouteVersion,
    /// A restarted replica gets requests before it serves.
    KeepsServedReplicas,
    /// A late report of a probe replaces a newer one.
    BelievesLateProbes,
    /// Ready replicas are removed, however few are left.
    IgnoresUnavailable,
    /// Replicas that load are removed when there are too many.
    RemovesLoadingReplicas,
    /// A replica whose container will be taken is drained before another one serves.
    DrainsBeforeSubstitute,
    /// A new revision that does not serve is never rolled back.
    NeverRollsBack,
    /// A new revision is promoted without a watch.
    PromotesWithoutWatch,
    /// A new revision that is judged bad is kept.
    IgnoresJudgement,
    /// Old replicas are removed before the watch is over.
    StopsOldBeforeWatch,
    /// An update begins while another one is in progress.
    UpdatesDuringUpdate,
}

impl Mutant {
    /// Returns true if this fault is injected. Always false in a release build, and compiled away.
    pub(super) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self == mutant
    }
}
