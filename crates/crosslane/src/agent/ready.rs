//! Tells whoever started the agent that it is ready, and lives, as systemd asks of
//! a service of `Type=notify` (sd_notify(3), sd_watchdog_enabled(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

/// Name of the variable that says where to tell it.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Name of the variable that says within how many µs it must be told again that
/// the agent lives.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Name of the variable that says of which process.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// The agent is ready.
pub const READY: &[u8] = b"READY=1";
/// The agent lives, with all its threads.
pub const ALIVE: &[u8] = b"WATCHDOG=1";

/// Ticks at which [`ALIVE`] is to be told; none if nobody asked.
pub fn watchdog() -> Option<Interval> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let own = number(WATCHDOG_PROCESS).is_none_or(|process| process == u64::from(std::process::id()));
    let each = number(WATCHDOG_VARIABLE).filter(|micros| own && *micros > 1)?;
    let mut ticks = tokio::time::interval(Duration::from_micros(each / 2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(ticks)
}

/// The next tick; never, without.
pub async fn due(watchdog: Option<&mut Interval>) {
    match watchdog {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

/// Tells that it is ready, if anybody asked. A failure is the asker's to notice.
pub fn tell() {
    send(READY);
}

/// Tells that it lives.
pub fn tell_alive() {
    send(ALIVE);
}

fn send(message: &[u8]) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::path::Path::new(&*String::from_utf8_lossy(name))),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message, &address));
    drop(told);
}
