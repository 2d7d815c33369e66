//! An agent in a thread of another program.

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::config::Config;
use super::{Driver, runtime};
use crate::error::{Error, Result};

/// A running agent, in the network namespace of the thread that started it;
/// it stops when this is dropped.
pub struct Embedded {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Embedded {
    /// Starts an agent and returns once it is ready.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn start(config: Config) -> Result<Embedded> {
        let (end, ended) = oneshot::channel();
        let (report_ready, ready) = mpsc::channel();
        let drive = move || {
            runtime()?.block_on(async {
                let driver = Driver::new(config, None)?;
                let _ = report_ready.send(());
                // The channel carries no value; its closing ends the agent.
                driver.run(async { drop(ended.await) }).await
            })
        };
        let starting = |cause| Error::failure("starting the agent", cause);
        let thread = std::thread::Builder::new().spawn(drive).map_err(starting)?;
        let mut embedded = Embedded { end: Some(end), thread: Some(thread) };
        match ready.recv() {
            Ok(()) => Ok(embedded),
            Err(_) => Err(embedded.join().err().unwrap_or_else(|| Error::failure("starting the agent", "it ended"))),
        }
    }

    fn join(&mut self) -> Result<()> {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        ended.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err(Error::failure("running the agent", "it panicked")))
    }
}

impl Drop for Embedded {
    /// The cause of an earlier failure is dropped: the sender has already noticed that the agent is gone.
    fn drop(&mut self) {
        drop(self.join());
    }
}
