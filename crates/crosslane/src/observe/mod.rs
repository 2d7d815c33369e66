//! Observers: sources of the agent's inputs, such as received radio messages.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crosslane_core::agent::Input;
use crosslane_core::path::Signal;
use crosslane_core::path::VehicleState;

pub mod admission;
pub mod gpsd;
pub mod modem_manager;
pub mod nl80211;
pub mod radiotap;
pub mod recorded;
pub mod vanetza;
pub mod worker;

/// What a source observed.
pub enum Observed {
    /// An input of the agent's engine.
    Input(Input),
    /// A CAM of a station that no path names: perhaps of a roadside unit.
    Station(Signal),
    /// Position, heading and speed of the vehicle.
    Fix(Fix),
    /// A sentence for the user: a source failed, or works again.
    Note(String),
}

/// What a satellite receiver reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fix {
    /// State of the vehicle; without a position there is no fix.
    pub state: VehicleState,
    /// Its time, in ms since 1970 (UTC); none if not known.
    pub unix_ms: Option<u64>,
}

impl<T: Into<Input>> From<T> for Observed {
    fn from(input: T) -> Observed {
        Observed::Input(input.into())
    }
}

/// The next observation, or why a message yields none; the latter is no failure of the agent.
pub type Observation = Result<Observed, Box<dyn Display>>;

/// A source of observations.
pub trait Observer {
    /// Its name in reports: where a signal comes from.
    fn name(&self) -> &'static str;

    /// The next observation. Safe to cancel.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Observation> + '_>>;
}

/// The next observation of any source, each in its turn, and the source's name; pends forever without sources.
pub async fn next(sources: &mut [Box<dyn Observer>]) -> (&'static str, Observation) {
    if let [_, _, ..] = sources {
        sources.rotate_left(1);
    }
    let mut pending: Vec<_> = sources.iter_mut().map(|source| (source.name(), source.next())).collect();
    poll_fn(|context| {
        let mut polled = pending.iter_mut().map(|(name, next)| next.as_mut().poll(context).map(|found| (*name, found)));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_core::path::{PathId, Sample, SampleKind};

    /// Observes that the interface of one path is up, always.
    struct AlwaysUp(u8);

    impl Observer for AlwaysUp {
        fn name(&self) -> &'static str {
            "test"
        }

        fn next(&mut self) -> Pin<Box<dyn Future<Output = Observation> + '_>> {
            let sample = Sample { path: PathId(self.0), kind: SampleKind::Link { up: true } };
            Box::pin(async move { Ok(sample.into()) })
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_source_that_always_has_something_does_not_starve_another() {
        let mut sources: Vec<Box<dyn Observer>> = vec![Box::new(AlwaysUp(0)), Box::new(AlwaysUp(1))];
        let mut seen = [0; 2];
        for _ in 0..10 {
            match next(&mut sources).await {
                ("test", Ok(Observed::Input(Input::Sample(sample)))) => seen[usize::from(sample.path.0)] += 1,
                (name, other) => panic!("{name} {:?}", other.is_ok()),
            }
        }
        assert_eq!(seen, [5, 5]);
    }
}
