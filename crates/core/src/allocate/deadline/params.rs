//! Parameters of the strategy `deadline`.

crate::parameters! {
    /// Parameters of [`Deadline`](super::Deadline).
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Probability that a path carries what is planned on it.
        confidence: f64 = 0.95, "0–1", 0.5 to 1.0;
        /// How long before its deadline an object is to be complete: for what no forecast includes, e.g. the last
        /// segment's retransmission.
        margin_ms: f64 = 70.0, "ms", 0.0 to 3.6e6;
        /// A path that carries is switched off when the cheaper ones would be done this long before the object
        /// must be complete.
        spare_ms: f64 = 50.0, "ms", 0.0 to 3.6e6;
        /// A path that carries pauses only if it could for this long: each change costs the queued data, an RTT
        /// and a slow start.
        pause_ms: f64 = 2000.0, "ms", 0.0 to 3.6e6;
        /// Rate assumed while no path has been observed for long, as a part of the rate it shows or, if it was
        /// never observed, of the lowest rate of the others.
        prior_share: f64 = 0.7, "0–1", 0.0 to 1.0;
        /// Part of the time until the deadline in which nothing is done while no path is known.
        learn_share: f64 = 0.15, "0–1", 0.0 to 1.0;
        /// Minimum and maximum of the sender's unacknowledged bytes, as multiples of rate × minimum RTT of each
        /// active path: 1 is in flight, the rest lets the rate grow and covers what waits for another path's
        /// bytes. It grows while no queue builds in the network. With several active paths it is at least what
        /// they carry while the slowest sends one burst.
        backlog_rtts: [f64; 2] = [2.0, 3.0], "RTT", 1.0 to 100.0;
    }
}
