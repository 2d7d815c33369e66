//! The link emulator: one thread that carries packets between TUN devices
//! according to the link model.
//!
//! It reads packets, timestamps them, passes them to [`Link`] and writes them
//! when they are due. It wakes up when a packet arrives or is due; under load it
//! wakes up in slots of [`SLOT`] instead. Its [`EmulatorReport`] contains its
//! lateness.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use crosslane_core::link::{Direction, DirectionParams, Link};
use crosslane_core::time::Duration;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{PathDevices, Testbed};
use crate::clock::Clock;
use crate::error::{Error, Result};

mod cpu_pause;
mod pool;
mod records;
mod report;
mod worker;

use cpu_pause::PauseDetector;
pub use records::{HEAD_BYTES, PacketRecord, PacketSink, PacketSource, packet_channel};
pub use report::{Counters, EmulatorReport, LinkReport};
use worker::Worker;

/// Minimum interval of wake-ups under load (10 packets a millisecond and more,
/// in and out together).
pub const SLOT: Duration = Duration::from_micros(75);

/// Maximum number of queued commands.
const MAX_COMMANDS: usize = 1024;

/// A link to emulate, and the devices of each path over it.
#[derive(Debug)]
pub struct EmulatedLink {
    /// The devices, one pair for each station of the model.
    pub devices: Vec<PathDevices>,
    /// The model.
    pub link: Link,
}

/// A running emulator. On drop it ends without a report.
#[derive(Debug)]
pub struct Emulator {
    control: Control,
    thread: Option<JoinHandle<Result<Worker>>>,
    pause_detector: Option<PauseDetector>,
}

/// Changes links while the emulator runs, from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    commands: SyncSender<Command>,
    wakeup: Arc<EventFd>,
}

/// A command to the emulator.
#[derive(Debug)]
enum Command {
    /// Changes the path with this index, or the link that it uses.
    Change(usize, Change),
    Stop,
}

/// A change of a link.
#[derive(Debug)]
enum Change {
    Set(Direction, DirectionParams),
    SetOn(bool),
    Occupy(Duration),
}

impl Emulator {
    /// Starts the thread. Paths are numbered in the order of their devices; every packet is reported to
    /// `sink`, if there is one.
    ///
    /// # Errors
    /// The kernel cannot create a thread, timer or descriptor.
    pub fn start(clock: Clock, links: Vec<EmulatedLink>, sink: Option<PacketSink>) -> Result<Emulator> {
        let failure = |cause| Error::failure("starting the link emulator", cause);
        let wakeup = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let wakeup = Arc::new(wakeup.map_err(|errno| failure(errno.into()))?);
        let (commands, queue) = sync_channel(MAX_COMMANDS);
        let worker =
            Worker::new(clock, links, sink, queue, Arc::clone(&wakeup)).map_err(|errno| failure(errno.into()))?;
        let thread = thread::Builder::new().name("emulator".into()).spawn(|| worker.run()).map_err(failure)?;
        let pause_detector = Some(PauseDetector::start(clock));
        Ok(Emulator { control: Control { commands, wakeup }, thread: Some(thread), pause_detector })
    }

    /// A handle for changing links.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// True if the thread has ended by itself: [`stop`](Emulator::stop) returns the
    /// cause.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread and returns its report; the devices are removed.
    ///
    /// # Errors
    /// The cause, if the thread has ended before.
    pub fn stop(mut self, testbed: &Testbed) -> Result<EmulatorReport> {
        let ended = self.end();
        let pauses = self.pause_detector.take().map_or_else(Vec::new, PauseDetector::stop);
        ended?.into_report(&pauses, |path| testbed.device_drops(path))
    }

    fn end(&mut self) -> Result<Worker> {
        let failure = || Error::failure("carrying packets between the namespaces", "the emulator's thread has ended");
        while !self.has_failed() && self.control.send(Command::Stop).is_err() {
            thread::yield_now();
        }
        self.thread.take().and_then(|thread| thread.join().ok()).ok_or_else(failure)?
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // A failure cannot be reported here.
            let _ = self.end();
        }
        drop(self.pause_detector.take().map(PauseDetector::stop));
    }
}

impl Control {
    /// Changes the parameters of one direction of the path with this index.
    ///
    /// # Errors
    /// 1024 commands are queued, or the emulator has ended.
    pub fn set(&self, path: usize, direction: Direction, params: DirectionParams) -> Result<()> {
        self.send(Command::Change(path, Change::Set(direction, params)))
    }

    /// Turns a link on or off, in both directions.
    ///
    /// # Errors
    /// As for [`set`](Control::set).
    pub fn set_on(&self, path: usize, on: bool) -> Result<()> {
        self.send(Command::Change(path, Change::SetOn(on)))
    }

    /// Occupies the channel of an 802.11p link for `air_time`, as a CAM does.
    ///
    /// # Errors
    /// As for [`set`](Control::set).
    pub fn occupy(&self, path: usize, air_time: Duration) -> Result<()> {
        self.send(Command::Change(path, Change::Occupy(air_time)))
    }

    fn send(&self, command: Command) -> Result<()> {
        let attempt = "changing an emulated link";
        self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => Error::failure(attempt, format!("{MAX_COMMANDS} changes are queued")),
            TrySendError::Disconnected(_) => Error::failure(attempt, "the emulator has ended"),
        })?;
        // The write fails only if the counter is full; then the thread wakes up anyway.
        let _ = self.wakeup.write(1);
        Ok(())
    }
}
