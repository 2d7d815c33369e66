//! A control socket that answers every line with the status, for a program that takes no other request.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::listener::{Listener, listen};
use super::protocol::{MAX_CLIENTS, MAX_LINE_BYTES, Reply, line};
use super::trust::{Groups, Listeners, is_owner, trust};

/// Longest time for a client's request, and for it to read the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a connection that could not be accepted, as for lack of a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens, and passes requests to the program's loop.
pub struct StatusServer {
    requests: mpsc::Receiver<StatusRequest>,
    task: JoinHandle<()>,
}

/// A client that waits for the status.
pub struct StatusRequest(oneshot::Sender<Vec<u8>>);

impl StatusRequest {
    /// Sends the status. The client may have gone.
    pub fn answer(self, status: &impl Serialize) {
        drop(self.0.send(line(status)));
    }
}

impl StatusServer {
    /// Listens at a name, for root and this user. Must be called within a runtime with I/O and time.
    ///
    /// # Errors
    /// Another process listens there.
    pub fn listen(name: &str) -> io::Result<StatusServer> {
        let (sender, requests) = mpsc::channel(MAX_CLIENTS);
        Ok(StatusServer { requests, task: tokio::spawn(accept(listen(name, None)?, sender)) })
    }

    /// The next request. Safe to cancel.
    pub async fn next(&mut self) -> StatusRequest {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether a program of root or of this user listens at a name, not one of another user.
pub fn is_ours(name: &str) -> bool {
    Listeners::default().user(name).is_some_and(is_owner)
}

async fn accept(listener: Listener, requests: mpsc::Sender<StatusRequest>) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(stream) = poll_fn(|context| listener.poll_accept(context)).await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Ok(place) = places.clone().try_acquire_owned() {
            let requests = requests.clone();
            tokio::spawn(async move {
                drop(timeout(CLIENT_TIMEOUT, serve(stream, requests)).await);
                drop(place);
            });
        }
    }
}

/// Answers each line of a client until it closes the connection.
async fn serve(mut stream: UnixStream, requests: mpsc::Sender<StatusRequest>) -> io::Result<()> {
    if let Err(user) = trust(&stream, Groups::default()) {
        let sentence = format!(
            "while requesting the status: {user} is neither root nor the user of the program; run \
                                this command as one of them"
        );
        return stream.write_all(&line(&Reply::Error(sentence))).await;
    }
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader.take(MAX_LINE_BYTES as u64));
    let mut request = Vec::new();
    while reader.read_until(b'\n', &mut request).await? > 0 {
        let is_object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&request);
        if !is_object.is_ok_and(|keys| keys.is_empty()) {
            let sentence = "while requesting the status: the line is not {}; write one line with an empty JSON object";
            return writer.write_all(&line(&Reply::Error(sentence.into()))).await;
        }
        request.clear();
        let (sender, answer) = oneshot::channel();
        if requests.send(StatusRequest(sender)).await.is_err() {
            return Ok(());
        }
        match answer.await {
            Ok(answer) => writer.write_all(&answer).await?,
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
