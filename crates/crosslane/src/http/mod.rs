//! A page and metrics of a running agent over HTTP (`docs/guide/running-agent.md`), and the same page of a recorded run.
//! A separate thread serves an agent's: it asks the agent's loop for views, and has no request that changes anything.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::{Error, Result};
use crate::output;

pub mod metrics;
mod replay;
mod respond;
mod views;

pub use replay::Options as ViewOptions;
use replay::Replay;
use respond::{Source, respond};
use views::Views;
pub use views::{Signals, View};

/// Connections of clients at once; further ones wait until one of these ends.
const MAX_CONNECTIONS: usize = 16;
/// Longest time of a connection, from its acceptance to the last byte that the client reads.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Maximum size of a request's head, in bytes: the minimum that hyper accepts.
const MAX_HEAD_BYTES: usize = 8192;
/// Views that wait for the agent's loop.
const MAX_VIEWS: usize = 4;
/// Pause after the system refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The thread; it ends when this is dropped.
pub struct HttpServer {
    views: mpsc::Receiver<View>,
    _end: oneshot::Sender<()>,
}

impl HttpServer {
    /// Listens, in this thread's network namespace.
    ///
    /// # Errors
    /// The address is in use or not this machine's; or there is no thread.
    pub fn start(listen: SocketAddr) -> Result<HttpServer> {
        let remedy = "set http.listen to an address of this machine and a free port";
        let failed = |cause: io::Error| failure(listen, cause, remedy);
        let listener = bind(listen).map_err(failed)?;
        let (sender, views) = mpsc::channel(MAX_VIEWS);
        let (end, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let serve = async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::select! {
                () = accept(listener, Arc::new(Source::Agent(Views::new(sender)))) => {}
                _ = ended => {}
            }
        };
        thread::Builder::new().name("http".into()).spawn(move || runtime.block_on(serve)).map_err(failed)?;
        Ok(HttpServer { views, _end: end })
    }

    /// The next view that a client requests; `None` if the thread has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<View> {
        self.views.recv().await
    }
}

/// `crosslane view`: serves the page of a recorded run until Ctrl-C.
///
/// # Errors
/// The folder is cut short, or the address is in use or not this machine's.
pub fn view(options: &ViewOptions) -> Result<()> {
    let replay = Replay::open(&options.run)?;
    let remedy = "name an address of this machine and a free port by --listen";
    let failed = |cause: io::Error| failure(options.listen, cause, remedy);
    let listener = bind(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let shown = format!("http://{address}/ shows {} until Ctrl-C\n", options.run.display());
    output::print("printing the page's address", shown)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        tokio::select! {
            () = accept(listener, Arc::new(Source::Run(replay))) => Ok(()),
            ended = tokio::signal::ctrl_c() => ended.map_err(failed),
        }
    })
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn failure(listen: SocketAddr, cause: io::Error, remedy: &str) -> Error {
    Error::failure(format!("listening for HTTP on {listen}"), cause).with_remedy(remedy)
}

async fn accept(listener: tokio::net::TcpListener, source: Arc<Source>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = source.clone();
                tokio::spawn(async move {
                    // A client that is slow, or that sends no request, loses its connection.
                    let _ = tokio::time::timeout(MAX_CONNECTION_TIME, serve(stream, source)).await;
                    drop(place);
                });
            }
            // As with too many open files: it may be possible later.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one request. A connection that stays open would keep its place from other clients.
async fn serve(stream: TcpStream, source: Arc<Source>) -> Result<(), hyper::Error> {
    let Ok(local) = stream.local_addr() else { return Ok(()) };
    let mut protocol = http1::Builder::new();
    protocol.keep_alive(false).header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES);
    let service = service_fn(move |request| {
        let source = source.clone();
        async move { Ok::<_, std::convert::Infallible>(respond(&source, local.ip(), &request).await) }
    });
    protocol.serve_connection(TokioIo::new(stream), service).await
}
