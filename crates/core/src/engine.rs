//! The interface of every component that makes decisions.

use crate::time::Instant;

/// A component that makes decisions or carries data, without access to a clock or the
/// system.
///
/// The driver calls [`handle`](Engine::handle) with each input, then
/// [`poll`](Engine::poll) until it returns `None`, then sleeps until
/// [`next_wakeup`](Engine::next_wakeup) or the next input, whichever comes first, and
/// polls again.
pub trait Engine {
    /// Type of the inputs.
    type Input;
    /// Type of the outputs.
    type Output;

    /// Processes an input at `now`, which never decreases from call to call.
    fn handle(&mut self, now: Instant, input: Self::Input);

    /// The next output due at `now`, if any.
    fn poll(&mut self, now: Instant) -> Option<Self::Output>;

    /// When to poll again if no input arrives; `None`: never.
    fn next_wakeup(&self) -> Option<Instant>;
}
