//! The agent's end. Whoever asks is served by a task of his own, so that the
//! agent waits for none of them.

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

/// Served at once; each is done within [`PATIENCE`].
pub const MAX_ASKERS: usize = 8;
/// So long one may take to ask and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rest after the kernel had no descriptor for one who came.
const REST: Duration = Duration::from_millis(100);
/// What every refusal begins with.
const ATTEMPT: &str = "asking the tunnel";

/// Listens for those who ask, until the runtime ends.
pub struct Server {
    asks: mpsc::Receiver<ControlRequest>,
}

/// A request that waits for its answer.
pub struct ControlRequest {
    request: Request,
    reply: oneshot::Sender<Reply>,
}

impl ControlRequest {
    /// How the paths are to be used from now on, if that is to change.
    pub fn mode(&self) -> Option<Mode> {
        self.request.mode
    }

    /// Answers.
    pub fn answer(self, status: Result<Status>) {
        let reply = status.map_or_else(|refusal| refuse(&refusal), Reply::Status);
        // Who asked may have gone.
        drop(self.reply.send(reply));
    }
}

/// The next request; never, without a server. Safe to cancel.
pub async fn next(server: Option<&mut Server>) -> ControlRequest {
    let ask = match server {
        Some(server) => server.asks.recv().await,
        None => None,
    };
    match ask {
        Some(ask) => ask,
        None => pending().await,
    }
}

impl Server {
    /// Listens for those who ask about the tunnel with this interface. Must be
    /// called within a runtime.
    ///
    /// # Errors
    /// Somebody else listens there.
    pub fn open(interface: &str) -> Result<Server> {
        let listener = listen(interface).map_err(|cause| {
            let attempt = format!("letting people ask for the tunnel {interface:?}");
            let remedy = "end who listens at this name; the tunnel works without `crosslane tunnel` meanwhile";
            Error::failure(attempt, cause).with_remedy(remedy)
        })?;
        let (tell, asks) = mpsc::channel(1);
        tokio::spawn(serve(listener, tell));
        Ok(Server { asks })
    }
}

fn listen(interface: &str) -> io::Result<UnixListener> {
    let bound = Bound::bind_addr(&address(interface)?)?;
    bound.set_nonblocking(true)?;
    UnixListener::from_std(bound)
}

async fn serve(listener: UnixListener, tell: mpsc::Sender<ControlRequest>) {
    let seats = Arc::new(Semaphore::new(MAX_ASKERS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match admit(&stream, &seats) {
                Ok(seat) => drop(tokio::spawn(attend(stream, tell.clone(), seat))),
                Err(refusal) => hang_up(&stream, &refusal),
            },
            Err(_) => sleep(REST).await,
        }
    }
}

/// A place for someone who may ask.
fn admit(stream: &UnixStream, seats: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    if !stream.peer_cred().is_ok_and(|who| is_trusted(who.uid())) {
        let cause = "only root and the agent's own user may";
        return Err(Error::usage(ATTEMPT, cause, "run this command as one of them, as with `sudo`"));
    }
    let full = |_| Error::usage(ATTEMPT, format!("{MAX_ASKERS} others are asking"), "try again in a moment");
    seats.clone().try_acquire_owned().map_err(full)
}

/// A refusal finds room in every socket that is new.
fn hang_up(stream: &UnixStream, refusal: &Error) {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    drop(SockRef::from(stream).send_with_flags(&line(&refuse(refusal)), flags));
}

fn refuse(refusal: &Error) -> Reply {
    Reply::Refused { error: refusal.to_string() }
}

async fn attend(mut stream: UnixStream, tell: mpsc::Sender<ControlRequest>, _seat: OwnedSemaphorePermit) {
    let talk = async {
        let Some(reply) = reply(&mut stream, &tell).await else { return };
        // Who does not read has no answer.
        drop(stream.write_all(&line(&reply)).await);
    };
    drop(timeout(PATIENCE, talk).await);
}

/// What to answer; nothing to one who is gone.
async fn reply(stream: &mut UnixStream, tell: &mpsc::Sender<ControlRequest>) -> Option<Reply> {
    let mut line = Vec::new();
    let limit = MAX_REQUEST_BYTES as u64 + 1;
    BufReader::new(stream.take(limit)).read_until(b'\n', &mut line).await.ok()?;
    let request = match read(&line) {
        Ok(request) => request,
        Err(cause) => {
            let remedy = "write one line of JSON as docs/formats.md has it";
            return Some(refuse(&Error::usage(ATTEMPT, cause, remedy)));
        }
    };
    let (reply, answer) = oneshot::channel();
    tell.send(ControlRequest { request, reply }).await.ok()?;
    answer.await.ok()
}

/// What a line asks.
///
/// # Errors
/// What is wrong with it, without the attempt and the remedy.
pub(super) fn read(line: &[u8]) -> Result<Request, String> {
    if line.len() > MAX_REQUEST_BYTES {
        return Err(format!("a line has more than {MAX_REQUEST_BYTES} bytes"));
    }
    serde_json::from_slice(line).map_err(|cause| cause.to_string())
}
