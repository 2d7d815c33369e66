//! A source that works by itself, in a task or a thread, and what it reports to the agent.

use std::fmt::Display;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::{Observation, Observed, Observer};
use crate::error::Error;

/// Pause before a source that failed is tried again.
pub const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of observations that wait for the agent.
const MAX_WAITING: usize = 16;

/// What the agent has of it.
pub struct Worker {
    name: &'static str,
    observed: mpsc::Receiver<Result<Observed, String>>,
    task: Option<AbortHandle>,
}

impl Worker {
    /// Runs a task, which ends with the worker; must be called within a runtime.
    pub fn task<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        wording: Wording,
        work: impl FnOnce(Reporter) -> F,
    ) -> Worker {
        let (reporter, observed) = reporter(wording);
        let task = tokio::spawn(work(reporter)).abort_handle();
        Worker { name, observed, task: Some(task) }
    }

    /// Runs a thread, which is to end when it [cannot report](Reporter::is_over) any more.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn thread(
        name: &'static str,
        wording: Wording,
        work: impl FnOnce(Reporter) + Send + 'static,
    ) -> std::io::Result<Worker> {
        let (reporter, observed) = reporter(wording);
        std::thread::Builder::new().name(name.into()).spawn(move || work(reporter))?;
        Ok(Worker { name, observed, task: None })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

impl Observer for Worker {
    fn name(&self) -> &'static str {
        self.name
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Observation> + '_>> {
        Box::pin(async {
            match self.observed.recv().await {
                Some(observed) => observed.map_err(|rejected| Box::new(rejected) as _),
                None => pending().await,
            }
        })
    }
}

/// The words in which a failure is reported.
pub struct Wording {
    /// What the source does, as "receiving the position from gpsd at 127.0.0.1:2947".
    pub attempt: String,
    /// What the user can do.
    pub remedy: &'static str,
    /// What the agent is without meanwhile.
    pub lacks: &'static str,
}

/// Reports observations. The first failure and the next success are notes to the user.
pub struct Reporter {
    sender: mpsc::Sender<Result<Observed, String>>,
    wording: Wording,
    has_failed: bool,
}

fn reporter(wording: Wording) -> (Reporter, mpsc::Receiver<Result<Observed, String>>) {
    let (sender, observed) = mpsc::channel(MAX_WAITING);
    (Reporter { sender, wording, has_failed: false }, observed)
}

impl Reporter {
    /// Whether the agent does not listen any more.
    pub fn is_over(&self) -> bool {
        self.sender.is_closed()
    }

    /// Reports an observation, or why a message yields none.
    pub async fn send(&self, observed: Result<Observed, String>) {
        // The agent is gone if this fails, and this source will be.
        drop(self.sender.send(observed).await);
    }

    /// The same in a thread.
    pub fn send_blocking(&self, observed: Result<Observed, String>) {
        drop(self.sender.blocking_send(observed));
    }

    /// The note that the source works again, if it had failed.
    pub fn works(&mut self) -> Option<Observed> {
        let has_failed = std::mem::take(&mut self.has_failed);
        has_failed.then(|| Observed::Note(format!("{} works now", self.wording.attempt)))
    }

    /// The note that it fails, the first time.
    pub fn fails(&mut self, cause: impl Display) -> Option<Observed> {
        let Wording { attempt, remedy, lacks } = &self.wording;
        let is_first = !std::mem::replace(&mut self.has_failed, true);
        is_first.then(|| {
            let fault = Error::failure(attempt, cause).with_remedy(*remedy);
            Observed::Note(format!("{fault}; the agent continues without {lacks} and retries"))
        })
    }
}
