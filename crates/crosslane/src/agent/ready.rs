//! Notifies the service manager that the agent is ready and alive, as systemd requires
//! for a service of `Type=notify` (sd_notify(3), sd_watchdog_enabled(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

/// Name of the variable with the socket to notify.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Name of the variable with the watchdog timeout, in µs.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Name of the variable with the process that the timeout is for.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// The agent is ready.
pub const READY: &[u8] = b"READY=1";
/// The agent lives, with all its threads.
pub const ALIVE: &[u8] = b"WATCHDOG=1";

/// Ticks at which [`ALIVE`] is to be sent; none if no watchdog is configured.
pub fn watchdog() -> Option<Interval> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let own = number(WATCHDOG_PROCESS).is_none_or(|process| process == u64::from(std::process::id()));
    let each = number(WATCHDOG_VARIABLE).filter(|micros| own && *micros > 1)?;
    let mut ticks = tokio::time::interval(Duration::from_micros(each / 2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Some(ticks)
}

/// Sends the service manager a notification, if a socket is set. A failure is ignored.
pub fn notify(message: &[u8]) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::path::Path::new(&*String::from_utf8_lossy(name))),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message, &address));
    drop(sent);
}
