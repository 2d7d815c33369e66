//! What a running agent believes of the paths: it sees the radio, and so a path that fades before it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crosslane_core::assess::Belief;
use crosslane_core::time::Instant;

use crate::clock::Clock;
use crate::control::report::AgentStatus;
use crate::control::running_agent::RunningAgent;
use crate::error::{Error, Result};

/// Interval at which the agent is asked, and at which one is looked for.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
const FIND_INTERVAL: Duration = Duration::from_secs(2);
/// An answer counts for this long: an agent that hangs or has ended is none.
const VALID: Duration = Duration::from_secs(1);

const BELIEFS: [Belief; 5] = [Belief::Unknown, Belief::Good, Belief::Fading, Belief::Lost, Belief::Stalled];

/// The latest beliefs, which a thread asks for.
#[derive(Clone, Debug, Default)]
pub struct Beliefs(Arc<Mutex<Answer>>);

#[derive(Debug, Default)]
struct Answer {
    by_interface: BTreeMap<String, Belief>,
    at: Option<Instant>,
}

impl Beliefs {
    /// Follows the agent of this network namespace, as `crosslane status` finds it, until this program ends. Without one,
    /// or if it does not answer this user, nothing is believed.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn follow(clock: Clock) -> Result<Beliefs> {
        let beliefs = Beliefs::default();
        let (answers, follow) = (beliefs.clone(), move |beliefs: Beliefs| {
            loop {
                let status = RunningAgent::find(None).and_then(|agent| agent.status());
                let nap = if status.is_ok() { ASK_INTERVAL } else { FIND_INTERVAL };
                if let Ok(status) = status {
                    beliefs.put(clock.now(), &status);
                }
                sleep(nap);
            }
        });
        let started = std::thread::Builder::new().spawn(move || follow(answers));
        started.map_err(|cause| Error::failure("starting a thread for the agent's beliefs", cause))?;
        Ok(beliefs)
    }

    /// What is believed of the path with this interface.
    pub fn of(&self, now: Instant, interface: &str) -> Belief {
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = answer.at.is_some_and(|at| now.since(at) < VALID);
        answer.by_interface.get(interface).copied().filter(|_| is_valid).unwrap_or_default()
    }

    fn put(&self, now: Instant, status: &AgentStatus) {
        let belief = |name: &str| BELIEFS.into_iter().find(|belief| belief.name() == name).unwrap_or_default();
        let by_interface = status.paths.iter().map(|path| (path.interface.clone(), belief(&path.belief))).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Answer { by_interface, at: Some(now) };
    }
}
