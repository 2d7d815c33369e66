//! The connection of a unit or a vehicle to its controller, which is made again by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crosslane_core::roadside::messages::{Announcement, MAX_ANNOUNCEMENT_BYTES, Report, Role, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::channel::{ChannelFault, KEEPALIVE, Opener, READ_BYTES, RESPONSE_BYTES, SILENCE, Sealer, initiate};
use crate::error::Error;
use crate::tunnel::security::{PrivateKey, PublicKey};

/// Pause before the second attempt to connect; it doubles with each further one.
pub const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two attempts: a controller that starts again knows all within a second.
pub const MAX_PAUSE: Duration = Duration::from_millis(800);
/// Pause after a refusal.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Longest time for a connection and its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of reports that wait: a second's of a unit with a thousand vehicles.
const MAX_REPORTS: usize = 16_384;
/// Maximum number of events that wait.
const MAX_EVENTS: usize = 1024;

/// A connection to a controller. It connects again after a failure, until it is dropped.
#[derive(Debug)]
pub struct Link {
    reports: mpsc::Sender<Report>,
    events: mpsc::Receiver<LinkEvent>,
    /// A report did not fit: the controller's picture is incomplete, and the connection must begin again.
    overrun: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// What happens to a [`Link`].
#[derive(Debug)]
pub enum LinkEvent {
    /// The controller accepted this peer. It knows nothing yet: everything must be reported.
    Up,
    /// There is no connection, for this reason, and reports are dropped. Sent once for each reason in a row.
    Down(Error),
    /// A message of the controller; never [`Refused`](Announcement::Refused) or
    /// [`Keepalive`](Announcement::Keepalive).
    Announcement(Announcement),
}

/// Where a controller is, and who follows it.
#[derive(Clone, Debug)]
pub struct Follower {
    /// The controller's host and port, as `192.0.2.1:4761`; a name is resolved at every attempt.
    pub controller: String,
    /// The controller's public key.
    pub controller_key: PublicKey,
    /// The private key of this unit or vehicle.
    pub key: PrivateKey,
    /// What this is.
    pub role: Role,
}

impl Link {
    /// Connects. Must be called within a runtime with I/O and time, which does the work.
    pub fn start(follower: Follower) -> Link {
        let (reports, queue) = mpsc::channel(MAX_REPORTS);
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let overrun = Arc::new(AtomicBool::new(false));
        let session = Session { follower, reports: queue, events: sender, overrun: overrun.clone(), is_up: false };
        Link { reports, events, overrun, task: tokio::spawn(session.run()) }
    }

    /// Sends a report, without waiting. While the link is down it is dropped: everything is reported again after
    /// [`LinkEvent::Up`].
    pub fn send(&self, report: Report) {
        if self.reports.try_send(report).is_err() {
            self.overrun.store(true, Relaxed);
        }
    }

    /// The next event. Safe to cancel.
    pub async fn next(&mut self) -> LinkEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends only with this.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Session {
    follower: Follower,
    reports: mpsc::Receiver<Report>,
    events: mpsc::Sender<LinkEvent>,
    overrun: Arc<AtomicBool>,
    is_up: bool,
}

/// Why a connection ended.
enum End {
    Fault(ChannelFault),
    Refused(String),
    Overrun,
}

impl<E: Into<ChannelFault>> From<E> for End {
    fn from(fault: E) -> End {
        End::Fault(fault.into())
    }
}

impl Session {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut reported = String::new();
        loop {
            let Err(end) = self.connection().await;
            let is_refusal = matches!(end, End::Refused(_));
            let error = self.error(end);
            let was_up = std::mem::take(&mut self.is_up);
            if was_up {
                pause = FIRST_PAUSE;
            }
            let wait = if is_refusal { REFUSED_PAUSE } else { pause };
            if was_up || error.to_string() != reported {
                reported = error.to_string();
                if self.events.send(LinkEvent::Down(error)).await.is_err() {
                    return;
                }
            }
            sleep(wait).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    fn error(&self, end: End) -> Error {
        let attempt = format!("following the controller at {}", self.follower.controller);
        match end {
            End::Refused(reason) => Error::failure(attempt, format!("it refuses: {reason}")),
            End::Overrun => Error::failure(attempt, "it accepts reports too slowly").with_remedy("this connects again"),
            End::Fault(ChannelFault::Handshake | ChannelFault::Closed) if !self.is_up => {
                let cause =
                    "it closed the connection in the handshake: its key is another, or too many connect from here";
                let remedy = "compare `controller_key` with what `crosslane keygen --public FILE` prints there; this \
                              connects again";
                Error::usage(attempt, cause, remedy)
            }
            End::Fault(fault) => {
                let remedy =
                    "see that `crosslane controller` runs there and `controller` names it; this connects again";
                Error::usage(attempt, fault, remedy)
            }
        }
    }

    /// Connects once, and works until the connection ends.
    async fn connection(&mut self) -> Result<std::convert::Infallible, End> {
        let (mut stream, mut sealer, mut opener) = timeout(CONNECT_TIMEOUT, self.connect()).await.map_err(late)??;
        while self.reports.try_recv().is_ok() {}
        self.overrun.store(false, Relaxed);
        let (mut reader, mut writer) = stream.split();
        let mut out = Vec::new();
        let mut plain = Vec::new();
        put(&Report::Hello { version: VERSION, role: self.follower.role }, &mut plain, &mut sealer, &mut out)?;
        let mut bytes = vec![0; READ_BYTES];
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = std::pin::pin!(sleep(SILENCE));
        loop {
            tokio::select! {
                read = reader.read(&mut bytes) => {
                    let read = read?;
                    if read == 0 {
                        return Err(ChannelFault::Closed.into());
                    }
                    opener.push(&bytes[..read]);
                    self.receive(&mut opener).await?;
                    silence.set(sleep(SILENCE));
                }
                () = &mut silence => return Err(ChannelFault::Silent.into()),
                written = writer.write(&out), if !out.is_empty() => drop(out.drain(..written?)),
                Some(report) = self.reports.recv(), if out.is_empty() => {
                    put(&report, &mut plain, &mut sealer, &mut out)?;
                    // What waits goes in one write.
                    while out.len() < READ_BYTES && let Ok(report) = self.reports.try_recv() {
                        put(&report, &mut plain, &mut sealer, &mut out)?;
                    }
                }
                _ = keepalive.tick() => {
                    if self.overrun.load(Relaxed) {
                        return Err(End::Overrun);
                    }
                    if out.is_empty() {
                        put(&Report::Keepalive, &mut plain, &mut sealer, &mut out)?;
                    }
                }
            }
        }
    }

    async fn connect(&self) -> Result<(TcpStream, Sealer, Opener), ChannelFault> {
        let mut stream = TcpStream::connect(&self.follower.controller).await?;
        stream.set_nodelay(true)?;
        let (initiation, frame) = initiate(&self.follower.key, &self.follower.controller_key)?;
        stream.write_all(&frame).await?;
        let mut answer = [0; RESPONSE_BYTES];
        stream.read_exact(&mut answer).await.map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ChannelFault::Handshake,
            _ => cause.into(),
        })?;
        let (sealer, opener) = initiation.finish(&answer, MAX_ANNOUNCEMENT_BYTES)?;
        Ok((stream, sealer, opener))
    }

    async fn receive(&mut self, opener: &mut Opener) -> Result<(), End> {
        while let Some(message) = opener.next()? {
            let announcement = Announcement::decode(message).map_err(ChannelFault::from)?;
            if let Announcement::Refused { reason } = announcement {
                return Err(End::Refused(reason));
            }
            if !std::mem::replace(&mut self.is_up, true) {
                self.pass(LinkEvent::Up).await?;
            }
            if announcement != Announcement::Keepalive {
                self.pass(LinkEvent::Announcement(announcement)).await?;
            }
        }
        Ok(())
    }

    async fn pass(&self, event: LinkEvent) -> Result<(), End> {
        self.events.send(event).await.map_err(|_| ChannelFault::Closed.into())
    }
}

fn late(_: tokio::time::error::Elapsed) -> ChannelFault {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer").into()
}

fn put(report: &Report, plain: &mut Vec<u8>, sealer: &mut Sealer, out: &mut Vec<u8>) -> Result<(), ChannelFault> {
    plain.clear();
    report.encode(plain);
    sealer.seal(plain, out)
}
