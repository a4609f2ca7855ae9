//! Deliberate faults for mutation testing. The simulation must detect each of them.

/// Deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// No fault.
    None,
    /// Sends all rows with every request.
    ResendsUnchanged,
    /// Keeps the view over a resync.
    ForgetsToResend,
    /// Does not send releases again after a resync.
    ForgetsReleases,
    /// Changes a request after its reply was lost.
    ChangesRetried,
    /// Does not deduct grants from the wants.
    IgnoresGrants,
    /// Does not count grants down in the view.
    ForgetsCountdown,
    /// Treats all grants of a reply as made after its request was delivered.
    CountsEarlyGrants,
    /// Does not deduct grants that the caller of `set_wants` had not seen.
    IgnoresStaleWants,
    /// Keeps surplus containers.
    KeepsSurplus,
    /// Accepts a container that was granted for an outdated ask.
    AcceptsOutdatedKind,
    /// Does not send exclusions again after a resync.
    ForgetsExcluded,
    /// Applies a rejected request to the view.
    AppliesRejected,
}

impl Mutant {
    /// All faults.
    #[cfg(feature = "mutants")]
    pub const ALL: [Mutant; 12] = [
        Mutant::ResendsUnchanged,
        Mutant::ForgetsToResend,
        Mutant::ForgetsReleases,
        Mutant::ChangesRetried,
        Mutant::IgnoresGrants,
        Mutant::ForgetsCountdown,
        Mutant::CountsEarlyGrants,
        Mutant::IgnoresStaleWants,
        Mutant::KeepsSurplus,
        Mutant::AcceptsOutdatedKind,
        Mutant::ForgetsExcluded,
        Mutant::AppliesRejected,
    ];

    /// Returns true if this fault is active. Always false, and compiled away, without the feature
    /// `mutants`.
    pub(super) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self == mutant
    }
}
