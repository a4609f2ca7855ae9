//! Deliberate mistakes. The simulation must find each of them; a product build has none.

/// A mistake to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// No mistake.
    None,
    /// All lines are sent with every request.
    ResendsUnchanged,
    /// After a resync the ResourceManager is thought to know what it knew.
    ForgetsToResend,
    /// A release is sent once, and not again after a resync.
    ForgetsReleases,
    /// A request whose reply was lost is put together anew.
    ChangesRetried,
    /// Grants do not lower what is wanted.
    IgnoresGrants,
    /// Grants do not lower what the ResourceManager is thought to believe.
    ForgetsCountdown,
    /// Grants that come back on a request are thought to be made after it arrived.
    CountsEarlyGrants,
    /// What is wanted is taken as said, however little the speaker knew.
    IgnoresStaleWants,
    /// A container nobody wants is kept.
    KeepsSurplus,
    /// A container that was made for an earlier ask is taken for one of the new kind.
    AcceptsOutdatedKind,
    /// Hosts to be avoided are not named again after a resync.
    ForgetsExcluded,
    /// A refused request is thought to have arrived.
    AppliesRejected,
}

impl Mutant {
    /// Every mistake.
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

    /// Whether this is the mistake being made. Always false in a product build, and compiled away.
    pub(super) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self == mutant
    }
}
