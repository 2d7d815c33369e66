//! What clients view of the agent. Its loop makes the views, one at a time, with pauses, however many clients there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::clock::monotonic_ns;
use crate::control::report::{AgentStatus, ConnectionPage, TokenName};

/// Pause before each view: with views of half a millisecond clients take at most a fortieth of the loop's time.
const PAUSE: Duration = Duration::from_millis(20);
/// A status is served to all clients for this time, in ns.
const STATUS_AGE_NS: u64 = 500_000_000;
/// Longest wait for the loop.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The signals of each path within the last minutes: time since each, in s, and its strength, in dBm, the oldest first.
pub type Signals = BTreeMap<String, Vec<(f32, f32)>>;

/// A view that a client requests, and where the loop sends it.
#[derive(Debug)]
pub enum View {
    /// The status.
    Status(oneshot::Sender<AgentStatus>),
    /// A part of the connections, from the next one after a token on.
    Connections(Option<TokenName>, oneshot::Sender<ConnectionPage>),
    /// The signals.
    Signals(oneshot::Sender<Signals>),
}

/// Requests views for all clients.
pub(super) struct Views {
    /// The loop, to which one client sends at a time.
    agent: Mutex<mpsc::Sender<View>>,
    /// The last status, with its time.
    last: Mutex<Option<(u64, Arc<AgentStatus>)>>,
}

impl Views {
    pub(super) fn new(agent: mpsc::Sender<View>) -> Views {
        Views { agent: Mutex::new(agent), last: Mutex::new(None) }
    }

    /// The status, at most half a second old; `None` if the loop does not answer, as of the next ones.
    pub(super) async fn status(&self) -> Option<Arc<AgentStatus>> {
        let mut last = self.last.lock().await;
        if let Some((at, status)) = &*last
            && monotonic_ns().saturating_sub(*at) < STATUS_AGE_NS
        {
            return Some(status.clone());
        }
        let status = Arc::new(self.request(View::Status).await?);
        *last = Some((monotonic_ns(), status.clone()));
        Some(status)
    }

    pub(super) async fn connections(&self, after: Option<TokenName>) -> Option<ConnectionPage> {
        self.request(|to| View::Connections(after, to)).await
    }

    pub(super) async fn signals(&self) -> Option<Signals> {
        self.request(View::Signals).await
    }

    async fn request<T>(&self, view: impl FnOnce(oneshot::Sender<T>) -> View) -> Option<T> {
        let agent = self.agent.lock().await;
        sleep(PAUSE).await;
        let (to, answer) = oneshot::channel();
        agent.send(view(to)).await.ok()?;
        timeout(ANSWER_TIME, answer).await.ok()?.ok()
    }
}
