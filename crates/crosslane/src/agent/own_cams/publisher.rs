//! The connection to the on-board unit's MQTT broker (decision 52).

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, NetworkOptions, Packet, QoS};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::message::TOPIC;
use crate::error::Error;
use crate::observe::{Observation, Observed, Observer};

/// A broker that is silent for longer is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Longest time for a connection, in s.
const CONNECT_TIMEOUT_S: u64 = 3;
/// Pause before the next connection.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// CAMs that wait for the socket: one second of them; further ones are dropped.
const MAX_WAITING: usize = 10;
/// Notes that wait for the agent.
const MAX_NOTES: usize = 16;

/// Publishes CAMs while the broker is connected, and reconnects.
pub struct Publisher {
    client: AsyncClient,
    is_connected: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// What the user should know of the connection.
pub struct Notes(mpsc::Receiver<String>);

impl Publisher {
    /// Connects to a broker; must be called within a runtime.
    pub fn connect(broker: SocketAddr) -> (Publisher, Notes) {
        let host = if broker.is_ipv6() { format!("[{}]", broker.ip()) } else { broker.ip().to_string() };
        let id = format!("crosslane-{}", std::process::id());
        let mut options = MqttOptions::new(id, host, broker.port());
        options.set_keep_alive(KEEP_ALIVE);
        let (client, mut events) = AsyncClient::new(options, MAX_WAITING);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        network.set_connection_timeout(CONNECT_TIMEOUT_S);
        events.set_network_options(network);
        let (sender, notes) = mpsc::channel(MAX_NOTES);
        let is_connected = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(follow(broker, events, is_connected.clone(), sender));
        (Publisher { client, is_connected, task }, Notes(notes))
    }

    /// Whether the broker is connected.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Relaxed)
    }

    /// Publishes a CAM at most once (QoS 0): one that is late is worth nothing.
    pub fn publish(&self, cam: &Value) {
        // If the queue is full, the broker does not read: this CAM is lost.
        drop(self.client.try_publish(TOPIC, QoS::AtMostOnce, false, cam.to_string()));
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer for Notes {
    fn name(&self) -> &'static str {
        "MQTT"
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Observation> + '_>> {
        Box::pin(async {
            match self.0.recv().await {
                Some(note) => Ok(Observed::Note(note)),
                None => pending().await,
            }
        })
    }
}

/// Runs the connection. The first failure and the next success are noted. CAMs of a broken
/// connection are dropped with its session.
async fn follow(broker: SocketAddr, mut events: EventLoop, is_connected: Arc<AtomicBool>, notes: mpsc::Sender<String>) {
    let mut is_noted = false;
    loop {
        match events.poll().await {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                is_connected.store(true, Relaxed);
                if std::mem::take(&mut is_noted) {
                    drop(notes.send(format!("sending CAMs to the MQTT broker {broker} works now")).await);
                }
            }
            Ok(_) => {}
            Err(cause) => {
                is_connected.store(false, Relaxed);
                if !std::mem::replace(&mut is_noted, true) {
                    let fault = Error::failure(format!("sending CAMs to the MQTT broker {broker}"), cause)
                        .with_remedy("start the on-board unit's broker, or correct cam.broker");
                    drop(notes.send(format!("{fault}; the agent continues without CAMs and retries")).await);
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
