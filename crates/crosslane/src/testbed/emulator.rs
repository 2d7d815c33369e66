//! The link emulator: one thread that carries packets between TUN devices as
//! the link model says.
//!
//! It reads packets, stamps them, hands them to [`Link`] and writes them out
//! when they are due. It wakes when a packet comes or is due; where packets are
//! many it wakes by slots of [`SLOT`] instead. How late it was is in its
//! [`EmulatorReport`].

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

use cpu_pause::Witnesses;
pub use records::{HEAD_BYTES, PacketRecord, PacketSink, PacketSource, packet_channel};
pub use report::{Counters, EmulatorReport, LinkReport};
use worker::Worker;

/// Under load (10 packets a millisecond and more, in and out together) the
/// emulator wakes no more often than this.
pub const SLOT: Duration = Duration::from_micros(75);

/// Commands that may wait for the emulator's next wakeup.
const MAX_COMMANDS: usize = 1024;

/// A link to emulate, and the devices at its ends.
#[derive(Debug)]
pub struct EmulatedLink {
    /// The devices.
    pub devices: PathDevices,
    /// The model.
    pub link: Link,
}

/// A running emulator. Dropped, it ends without a report.
#[derive(Debug)]
pub struct Emulator {
    control: Control,
    thread: Option<JoinHandle<Result<Worker>>>,
    witnesses: Option<Witnesses>,
}

/// Changes links while they run, from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    commands: SyncSender<Command>,
    bell: Arc<EventFd>,
}

/// What may be asked of the emulator, about the link with this place.
#[derive(Debug)]
enum Command {
    Set(usize, Direction, DirectionParams),
    SetOn(usize, bool),
    Occupy(usize, Duration),
    Stop,
}

impl Emulator {
    /// Starts the thread. `links` keep their places; every packet is told to
    /// `sink`, if there is one.
    ///
    /// # Errors
    /// The kernel has no thread, timer or descriptor to spare.
    pub fn start(clock: Clock, links: Vec<EmulatedLink>, sink: Option<PacketSink>) -> Result<Emulator> {
        let failure = |cause| Error::failure("starting the link emulator", cause);
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(|errno| failure(errno.into()))?);
        let (commands, inbox) = sync_channel(MAX_COMMANDS);
        let worker =
            Worker::new(clock, links, sink, inbox, Arc::clone(&bell)).map_err(|errno| failure(errno.into()))?;
        let thread = thread::Builder::new().name("emulator".into()).spawn(|| worker.run()).map_err(failure)?;
        let witnesses = Some(Witnesses::start(clock));
        Ok(Emulator { control: Control { commands, bell }, thread: Some(thread), witnesses })
    }

    /// A handle to change links with.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// True if the thread has ended by itself: [`stop`](Emulator::stop) says why.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread and tells how it went; the devices go with it.
    ///
    /// # Errors
    /// What made the thread end before, if it did.
    pub fn stop(mut self, testbed: &Testbed) -> Result<EmulatorReport> {
        let ended = self.end();
        let witnessed = self.witnesses.take().map_or_else(Vec::new, Witnesses::stop);
        ended?.into_report(&witnessed, |path| testbed.device_drops(path))
    }

    fn end(&mut self) -> Result<Worker> {
        let failure = || Error::failure("carrying packets between the namespaces", "the emulator's thread is gone");
        while !self.has_failed() && self.control.tell(Command::Stop).is_err() {
            thread::yield_now();
        }
        self.thread.take().and_then(|thread| thread.join().ok()).ok_or_else(failure)?
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody is left to hear of a failure.
            let _ = self.end();
        }
        drop(self.witnesses.take().map(Witnesses::stop));
    }
}

impl Control {
    /// Changes how one direction of the link with this place treats packets.
    ///
    /// # Errors
    /// 1024 commands are waiting, or the emulator has ended.
    pub fn set(&self, link: usize, direction: Direction, params: DirectionParams) -> Result<()> {
        self.tell(Command::Set(link, direction, params))
    }

    /// Turns a link on, or off: silent, in both directions.
    ///
    /// # Errors
    /// As for [`set`](Control::set).
    pub fn set_on(&self, link: usize, on: bool) -> Result<()> {
        self.tell(Command::SetOn(link, on))
    }

    /// Takes the air of an 802.11p link for so long, as a CAM does.
    ///
    /// # Errors
    /// As for [`set`](Control::set).
    pub fn occupy(&self, link: usize, air_time: Duration) -> Result<()> {
        self.tell(Command::Occupy(link, air_time))
    }

    fn tell(&self, command: Command) -> Result<()> {
        let attempt = "changing an emulated link";
        self.commands.try_send(command).map_err(|refused| match refused {
            TrySendError::Full(_) => Error::failure(attempt, format!("{MAX_COMMANDS} changes are waiting")),
            TrySendError::Disconnected(_) => Error::failure(attempt, "the emulator has ended"),
        })?;
        // The bell can fail only by being rung already.
        let _ = self.bell.write(1);
        Ok(())
    }
}
