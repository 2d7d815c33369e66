//! What a transfer sends: objects, as their source supplies them.

use std::time::Duration;

use crosslane_core::assess::Belief;
use crosslane_core::demand::Admission;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::Receipt;
use crosslane_core::transfer::multipath::frame::Part;
use crosslane_core::transfer::multipath::sender::{Carried, Decision};
use crosslane_core::transfer::multipath::{IDLE_INTERVAL, POLL_INTERVAL};

/// An object to be sent.
pub struct Object {
    /// Its name at the receiver.
    pub name: String,
    /// When it was generated.
    pub start: Instant,
    /// Its deadline.
    pub deadline: Option<Instant>,
    /// Its bytes.
    pub content: Box<dyn Content>,
    /// Its place in a file that grows; `None`: it is a whole file.
    pub part: Option<Part>,
    /// Whether it is dropped rather than sent late, over a connection for each path.
    pub is_droppable: bool,
}

impl Object {
    /// Its deadline, in ms since it was generated; 0: none.
    pub(super) fn deadline_ms(&self) -> u32 {
        let deadline_ms = self.deadline.map_or(0, |deadline| deadline.since(self.start).as_millis());
        u32::try_from(deadline_ms).unwrap_or(u32::MAX)
    }
}

/// The bytes of an object.
pub trait Content {
    /// Their number.
    fn size_bytes(&self) -> u64;

    /// When they were last modified, in ns since 1970; 0: not known, so they are not resumed.
    fn modified_ns(&self) -> u64 {
        0
    }

    /// Fills `buffer` with the bytes from this offset on.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), Abandoned>;
}

/// A source of objects, which receives their results.
pub trait Source {
    /// When the next object is generated; `None`: there are no more.
    fn next_due(&self) -> Option<Instant>;

    /// The next object.
    fn take(&mut self) -> Option<Object>;

    /// The next object, if it has been generated.
    fn take_due(&mut self, now: Instant) -> Option<Object> {
        if self.next_due()? <= now { self.take() } else { None }
    }

    /// Called with each event of an object or of the agent.
    fn on_news(&mut self, now: Instant, news: News);
}

/// An event that a source receives.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The number of the object taken last.
    Numbered(u32),
    /// Bytes of an open object that have arrived; reported for as many objects as
    /// a demand has.
    Acknowledged(u32, u64),
    /// Bytes of this object that the receiver had already.
    Resumed(u32, u64),
    /// The last byte of this object was written to a connection.
    Written(u32),
    /// This object is abandoned.
    Abandoned(u32, Abandoned),
    /// A receipt from the receiver.
    Receipt(Receipt),
    /// A prediction for the deadline of an object.
    Admission(Admission),
    /// A path carries from now on, or no more, with its place in the preference.
    Decision(Decision),
    /// The connection of a path broke, or could not be opened, for this reason.
    Down(usize, String),
    /// An agent believes something else of a path, and doubts it or did.
    Belief(usize, Belief),
    /// The connection of a path stands again.
    Up(usize),
    /// What a path has carried, at the end of the transfer.
    Carried(usize, Carried),
}

/// How long to wait at most; without open objects longer.
pub(super) fn nap(source: &dyn Source, now: Instant, is_idle: bool) -> Duration {
    let due = source.next_due().map_or(IDLE_INTERVAL, |due| due.since(now));
    let interval = if is_idle { IDLE_INTERVAL } else { POLL_INTERVAL };
    interval.min(due).max(Duration::from_millis(1))
}
