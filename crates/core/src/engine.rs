//! The one loop that everything which decides obeys.

use crate::time::Instant;

/// Something that decides or carries, and knows neither clock nor system.
///
/// The driver calls [`handle`](Engine::handle) with each input, then
/// [`poll`](Engine::poll) until it answers `None`, then sleeps until
/// [`next_wakeup`](Engine::next_wakeup) or the next input, whichever is first,
/// and polls again.
pub trait Engine {
    /// What comes in.
    type Input;
    /// What comes out.
    type Output;

    /// Takes an input at the moment `now`, which never runs backwards.
    fn handle(&mut self, now: Instant, input: Self::Input);

    /// The next output due at `now`, if any.
    fn poll(&mut self, now: Instant) -> Option<Self::Output>;

    /// When to poll again although no input came; `None` means never.
    fn next_wakeup(&self) -> Option<Instant>;
}
