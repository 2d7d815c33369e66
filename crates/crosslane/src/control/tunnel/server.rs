//! The agent's side. A separate task serves each client, so that the agent waits
//! for none of them.

use std::future::pending;
use std::io;
use std::os::unix::net::UnixListener as Bound;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::tunnel::Mode;
use socket2::SockRef;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::{MAX_REQUEST_BYTES, Reply, Request, Status, address, is_trusted, line};
use crate::error::{Error, Result};

/// Maximum number of clients served at once; each within [`CLIENT_TIMEOUT`].
pub const MAX_CLIENTS: usize = 8;
/// Time for a client to send its request and to read the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the kernel had no descriptor for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The attempt named by every rejection.
const ATTEMPT: &str = "querying the tunnel";

/// Listens for clients until the runtime ends.
pub struct Server {
    requests: mpsc::Receiver<ControlRequest>,
}

/// A request that waits for its reply.
pub struct ControlRequest {
    request: Request,
    reply: oneshot::Sender<Reply>,
}

impl ControlRequest {
    /// The mode to set, if the request changes it.
    pub fn mode(&self) -> Option<Mode> {
        self.request.mode
    }

    /// Replies to the client.
    pub fn answer(self, status: Result<Status>) {
        let reply = status.map_or_else(|rejection| reject(&rejection), Reply::Status);
        // The client may have gone.
        drop(self.reply.send(reply));
    }
}

/// The next request; pends forever without a server. Safe to cancel.
pub async fn next(server: Option<&mut Server>) -> ControlRequest {
    let request = match server {
        Some(server) => server.requests.recv().await,
        None => None,
    };
    match request {
        Some(request) => request,
        None => pending().await,
    }
}

impl Server {
    /// Listens for clients of the tunnel with this interface. Must be called within
    /// a runtime.
    ///
    /// # Errors
    /// Another process listens there.
    pub fn open(interface: &str) -> Result<Server> {
        let listener = listen(interface).map_err(|cause| {
            let attempt = format!("listening for requests to the tunnel {interface:?}");
            let remedy =
                "end the process that listens at this name; the tunnel works without `crosslane tunnel` meanwhile";
            Error::failure(attempt, cause).with_remedy(remedy)
        })?;
        let (sender, requests) = mpsc::channel(1);
        tokio::spawn(serve(listener, sender));
        Ok(Server { requests })
    }
}

fn listen(interface: &str) -> io::Result<UnixListener> {
    let bound = Bound::bind_addr(&address(interface)?)?;
    bound.set_nonblocking(true)?;
    UnixListener::from_std(bound)
}

async fn serve(listener: UnixListener, sender: mpsc::Sender<ControlRequest>) {
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match admit(&stream, &permits) {
                Ok(permit) => drop(tokio::spawn(serve_client(stream, sender.clone(), permit))),
                Err(rejection) => close(&stream, &rejection),
            },
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// A connection permit for a trusted client.
fn admit(stream: &UnixStream, permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    if !stream.peer_cred().is_ok_and(|client| is_trusted(client.uid())) {
        let cause = "only root and the agent's own user may";
        return Err(Error::usage(ATTEMPT, cause, "run this command as one of them, as with `sudo`"));
    }
    let full = |_| Error::usage(ATTEMPT, format!("{MAX_CLIENTS} other clients are connected"), "retry in a moment");
    permits.clone().try_acquire_owned().map_err(full)
}

/// Sends a rejection, for which every new socket has room.
fn close(stream: &UnixStream, rejection: &Error) {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    drop(SockRef::from(stream).send_with_flags(&line(&reject(rejection)), flags));
}

fn reject(rejection: &Error) -> Reply {
    Reply::Refused { error: rejection.to_string() }
}

async fn serve_client(mut stream: UnixStream, sender: mpsc::Sender<ControlRequest>, _permit: OwnedSemaphorePermit) {
    let exchange = async {
        let Some(reply) = reply(&mut stream, &sender).await else { return };
        // A client that does not read gets no reply.
        drop(stream.write_all(&line(&reply)).await);
    };
    drop(timeout(CLIENT_TIMEOUT, exchange).await);
}

/// The reply to a client; `None` if it is gone.
async fn reply(stream: &mut UnixStream, sender: &mpsc::Sender<ControlRequest>) -> Option<Reply> {
    let mut line = Vec::new();
    let limit = MAX_REQUEST_BYTES as u64 + 1;
    BufReader::new(stream.take(limit)).read_until(b'\n', &mut line).await.ok()?;
    let request = match read(&line) {
        Ok(request) => request,
        Err(cause) => {
            let remedy = "write one line of JSON as in docs/reference/control-socket.md";
            return Some(reject(&Error::usage(ATTEMPT, cause, remedy)));
        }
    };
    let (reply, answer) = oneshot::channel();
    sender.send(ControlRequest { request, reply }).await.ok()?;
    answer.await.ok()
}

/// Parses a request line.
///
/// # Errors
/// The cause, without the attempt and the remedy.
pub(super) fn read(line: &[u8]) -> Result<Request, String> {
    if line.len() > MAX_REQUEST_BYTES {
        return Err(format!("a line has more than {MAX_REQUEST_BYTES} bytes"));
    }
    serde_json::from_slice(line).map_err(|cause| cause.to_string())
}
