//! The controller's side of the channel: a task for each connection, which authenticates the peer,
//! passes its reports to the loop, and sends it announcements.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crosslane_core::roadside::controller::Peer;
use crosslane_core::roadside::messages::{Announcement, Fault, MAX_REPORT_BYTES, Report, Role, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use super::admission::{Admission, Place};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::roadside::channel::{ChannelFault, INITIATION_BYTES, KEEPALIVE, Opener, SILENCE, Sealer, respond};
use crate::tunnel::security::{PrivateKey, PublicKey};

/// Longest time until the peer is authenticated.
pub const PENDING_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes to read from a peer at once: the reports of a unit that receives 70 vehicles.
const READ_BYTES: usize = 4096;
/// Messages of all connections that wait for the loop.
const MAX_WAITING: usize = 1024;
/// Announcements that wait for a peer; one that lets more wait is disconnected.
const MAX_ANNOUNCEMENTS: usize = 16_384;
/// Pause after the system accepted no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest time to send a refusal, and then to wait for the peer to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection, by its number.
pub type Id = u64;

/// A message of a connection to the loop.
pub enum FromPeer {
    /// An authenticated peer of the configuration said its first message.
    Hello {
        /// The connection.
        id: Id,
        /// Who it is.
        peer: Peer,
        /// What it says of itself.
        role: Role,
        /// Where it is.
        address: SocketAddr,
        /// What it is to be sent.
        announcements: Outbox,
    },
    /// What arrived at once.
    Reports {
        /// The connection.
        id: Id,
        /// The messages, in order, without keepalives.
        reports: Vec<Report>,
    },
    /// The connection has ended.
    Gone {
        /// The connection.
        id: Id,
        /// The reason.
        fault: ChannelFault,
    },
    /// A connection was refused.
    Rejected {
        /// Where it came from.
        address: IpAddr,
        /// The reason.
        reason: String,
    },
}

/// What a peer is to be sent. The connection ends when this is dropped, after what it has.
pub struct Outbox(mpsc::Sender<Announcement>);

impl Outbox {
    /// Sends, without waiting; false if too much waits already.
    pub fn send(&self, announcement: Announcement) -> bool {
        self.0.try_send(announcement).is_ok()
    }
}

/// Connections that were refused, since the start.
#[derive(Default)]
pub struct Counts {
    /// Before the handshake: too many wait, or came from that address.
    pub limited: AtomicU64,
    /// The handshake, or what follows it, was forged, damaged, of wrong length or late.
    pub forged: AtomicU64,
    /// The key is not in the configuration.
    pub unknown_key: AtomicU64,
    /// The messages have another version.
    pub version: AtomicU64,
    /// An authenticated peer sent what is no message.
    pub malformed: AtomicU64,
}

/// Accepts connections.
pub struct Server {
    shared: Arc<Shared>,
    messages: mpsc::Receiver<FromPeer>,
    task: JoinHandle<()>,
    /// Where it listens.
    pub address: SocketAddr,
}

struct Shared {
    key: PrivateKey,
    keys: Mutex<Arc<BTreeMap<PublicKey, Peer>>>,
    admission: Admission,
    counts: Counts,
    clock: Clock,
    messages: mpsc::Sender<FromPeer>,
}

impl Server {
    /// Listens. Must be called within a runtime with I/O and time.
    ///
    /// # Errors
    /// The address is in use or not of this machine.
    pub fn listen(address: SocketAddr, key: PrivateKey, clock: Clock) -> Result<Server> {
        let attempt = format!("listening on {address}");
        let failed = |cause| Error::failure(&attempt, cause).with_remedy("end what listens there, or change `listen`");
        let socket = std::net::TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(socket).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let shared = Arc::new(Shared {
            key,
            keys: Mutex::default(),
            admission: Admission::default(),
            counts: Counts::default(),
            clock,
            messages: sender,
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Server { shared, messages, task, address })
    }

    /// Only peers with these keys are served.
    pub fn set_keys(&self, keys: BTreeMap<PublicKey, Peer>) {
        *self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Takes the next messages, at least one and up to the vector's capacity. Safe to cancel.
    pub async fn next(&mut self, into: &mut Vec<FromPeer>) {
        let most = into.capacity().max(1);
        self.messages.recv_many(into, most).await;
    }

    /// What was refused.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    for id in 0.. {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match shared.admission.take(shared.clock.now(), address.ip()) {
            Some(place) => drop(tokio::spawn(serve(stream, id, address, place, shared.clone()))),
            None => {
                shared.counts.limited.fetch_add(1, Relaxed);
                shared.rejected(address, "too many connections wait for their handshake, in all or from there");
            }
        }
    }
}

async fn serve(mut stream: TcpStream, id: Id, address: SocketAddr, place: Place, shared: Arc<Shared>) {
    let authenticated = timeout(PENDING_TIMEOUT, shared.authenticate(&mut stream)).await;
    drop(place);
    let forged = |fault: &dyn std::fmt::Display| {
        shared.counts.forged.fetch_add(1, Relaxed);
        shared.rejected(address, &fault.to_string());
    };
    let (key, hello, mut sealer, mut opener) = match authenticated {
        Ok(Ok(authenticated)) => authenticated,
        Ok(Err(fault)) => return forged(&fault),
        Err(_) => return forged(&"it did not authenticate itself within 3 s"),
    };
    let peer = shared.keys.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
    let (peer, role) = match (peer, hello) {
        (None, _) => {
            shared.counts.unknown_key.fetch_add(1, Relaxed);
            let reason =
                format!("the key {key} is not in its configuration; add a [[unit]] or [[vehicle]] with it there");
            shared.rejected(address, &reason);
            return refuse(stream, &mut sealer, reason).await;
        }
        (_, Err(Fault::Version(version))) => {
            shared.counts.version.fetch_add(1, Relaxed);
            let reason =
                format!("messages have version {version}, and its own {VERSION}; install the same version on both");
            shared.rejected(address, &reason);
            return refuse(stream, &mut sealer, reason).await;
        }
        (Some(peer), Ok(Report::Hello { role, .. })) => (peer, role),
        (Some(_), _) => {
            shared.counts.malformed.fetch_add(1, Relaxed);
            return shared.rejected(address, "its first message does not say who it is");
        }
    };
    let (announcements, outbox) = mpsc::channel(MAX_ANNOUNCEMENTS);
    let message = FromPeer::Hello { id, peer, role, address, announcements: Outbox(announcements) };
    if shared.messages.send(message).await.is_err() {
        return;
    }
    let Err(fault) = shared.relay(&mut stream, id, (&mut sealer, &mut opener), outbox).await else {
        return close(stream).await;
    };
    if matches!(fault, ChannelFault::Length | ChannelFault::Forged | ChannelFault::Message(_)) {
        shared.counts.malformed.fetch_add(1, Relaxed);
        shared.rejected(address, &fault.to_string());
    }
    drop(shared.messages.send(FromPeer::Gone { id, fault }).await);
}

impl Shared {
    fn rejected(&self, address: SocketAddr, reason: &str) {
        let address = address.ip().to_canonical();
        // In a flood, the counts are enough.
        drop(self.messages.try_send(FromPeer::Rejected { address, reason: reason.into() }));
    }

    /// The peer's key and first message.
    async fn authenticate(
        &self,
        stream: &mut TcpStream,
    ) -> Result<(PublicKey, Result<Report, Fault>, Sealer, Opener), ChannelFault> {
        stream.set_nodelay(true)?;
        let mut frame = [0; INITIATION_BYTES];
        stream.read_exact(&mut frame).await?;
        let (key, answer, sealer, mut opener) = respond(&self.key, &frame, MAX_REPORT_BYTES)?;
        stream.write_all(&answer).await?;
        let mut bytes = [0; 256];
        loop {
            if let Some(message) = opener.next()? {
                let hello = Report::decode(message);
                return Ok((key, hello, sealer, opener));
            }
            match stream.read(&mut bytes).await? {
                0 => return Err(ChannelFault::Closed),
                read => opener.push(&bytes[..read]),
            }
        }
    }

    /// Passes messages on until the connection ends; `Ok` if the loop ended it.
    async fn relay(
        &self,
        stream: &mut TcpStream,
        id: Id,
        (sealer, opener): (&mut Sealer, &mut Opener),
        mut outbox: mpsc::Receiver<Announcement>,
    ) -> Result<(), ChannelFault> {
        let (mut reader, mut writer) = stream.split();
        let (mut out, mut plain, mut bytes) = (Vec::new(), Vec::new(), vec![0; READ_BYTES]);
        let mut keepalive = interval(KEEPALIVE);
        // Not at once: the first announcement shows that the peer is served.
        keepalive.reset();
        let mut silence = std::pin::pin!(sleep(SILENCE));
        let mut is_open = true;
        self.pass(id, opener).await?;
        loop {
            tokio::select! {
                read = reader.read(&mut bytes) => match read? {
                    0 => return Err(ChannelFault::Closed),
                    read => {
                        opener.push(&bytes[..read]);
                        self.pass(id, opener).await?;
                        silence.set(sleep(SILENCE));
                    }
                },
                () = &mut silence => return Err(ChannelFault::Silent),
                written = writer.write(&out), if !out.is_empty() => drop(out.drain(..written?)),
                announcement = outbox.recv(), if out.is_empty() && is_open => match announcement {
                    Some(announcement) => put(&announcement, &mut plain, sealer, &mut out)?,
                    None => is_open = false,
                },
                _ = keepalive.tick(), if out.is_empty() && is_open => {
                    put(&Announcement::Keepalive, &mut plain, sealer, &mut out)?;
                }
            }
            if !is_open && out.is_empty() {
                return Ok(());
            }
        }
    }

    async fn pass(&self, id: Id, opener: &mut Opener) -> Result<(), ChannelFault> {
        let mut reports = Vec::new();
        let read = loop {
            match opener.next() {
                Ok(Some(message)) => match Report::decode(message) {
                    Ok(Report::Keepalive) => {}
                    Ok(report) => reports.push(report),
                    Err(fault) => break Err(fault.into()),
                },
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        if !reports.is_empty() {
            drop(self.messages.send(FromPeer::Reports { id, reports }).await);
        }
        read
    }
}

async fn refuse(mut stream: TcpStream, sealer: &mut Sealer, reason: String) {
    let mut frames = Vec::new();
    if put(&Announcement::Refused { reason }, &mut Vec::new(), sealer, &mut frames).is_ok()
        && let Ok(Ok(())) = timeout(CLOSE_TIMEOUT, stream.write_all(&frames)).await
    {
        close(stream).await;
    }
}

/// Waits until the peer has read all and closes: what it has sent meanwhile would reset the connection, and the
/// last message would be lost.
async fn close(mut stream: TcpStream) {
    let closed = timeout(CLOSE_TIMEOUT, async {
        stream.shutdown().await?;
        while stream.read(&mut [0; 256]).await? > 0 {}
        Ok::<(), std::io::Error>(())
    });
    drop(closed.await);
}

fn put(
    message: &Announcement,
    plain: &mut Vec<u8>,
    sealer: &mut Sealer,
    out: &mut Vec<u8>,
) -> Result<(), ChannelFault> {
    plain.clear();
    message.encode(plain);
    sealer.seal(plain, out)
}

#[cfg(test)]
mod tests;
