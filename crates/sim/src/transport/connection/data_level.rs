//! The data level of a connection (RFC 8684, section 3.3): what is sent and acknowledged of
//! all data, and the timer that covers it.

use crosslane_core::time::{Duration, Instant};

use super::super::clock::Ticks;

/// Send sequence variables of the data sequence numbers (RFC 9293, section 3.3.1, and RFC
/// 8684, section 3.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataWindow {
    /// The first number that is not acknowledged.
    pub acknowledged: u64,
    /// The first number that was never sent.
    pub sent: u64,
    /// Right edge of the peer's receive window.
    edge: u64,
}

impl DataWindow {
    /// The peer accepts data up to `edge`; the window never shrinks.
    pub fn extend(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }

    /// Processes an acknowledgement; false if it acknowledges nothing new or what was
    /// never sent.
    pub fn acknowledge(&mut self, data_ack: u64) -> bool {
        let is_new = data_ack > self.acknowledged && data_ack <= self.sent;
        if is_new {
            self.acknowledged = data_ack;
        }
        is_new
    }

    /// Bytes from `number` on that the peer accepts.
    pub fn room_from(&self, number: u64) -> u64 {
        self.edge.saturating_sub(number)
    }
}

/// The retransmission timer of a connection (Linux `mptcp_reset_rtx_timer`).
#[derive(Clone, Copy, Debug)]
pub(super) struct RetransmitTimer {
    /// When it expires; `None`: it is not running.
    pub at: Option<Instant>,
    /// From its start to its end.
    pub interval: Duration,
}

impl RetransmitTimer {
    /// Starts it unless it is running.
    pub fn start(&mut self, now: Instant, ticks: Ticks) {
        self.at = self.at.or_else(|| Some(ticks.after(now, self.interval)));
    }

    /// Starts it again, or stops it if nothing is left to be acknowledged.
    pub fn restart(&mut self, now: Instant, ticks: Ticks, all_acknowledged: bool) {
        self.at = (!all_acknowledged).then(|| ticks.after(now, self.interval));
    }

    /// Whether it has expired; it then stops.
    pub fn take_expired(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_acknowledgements_of_what_was_sent_count() {
        let mut window = DataWindow { sent: 1000, ..DataWindow::default() };
        assert!(!window.acknowledge(1001), "never sent");
        assert!(window.acknowledge(600) && !window.acknowledge(600) && !window.acknowledge(500));
        assert_eq!((window.acknowledged, window.sent), (600, 1000));
    }

    #[test]
    fn the_peer_s_window_never_shrinks() {
        let mut window = DataWindow::default();
        window.extend(5000);
        window.extend(4000);
        assert_eq!((window.room_from(1000), window.room_from(6000)), (4000, 0));
    }

    #[test]
    fn the_timer_runs_on_when_started_twice_and_expires_once() {
        let (ticks, ms) = (Ticks::new(0.0), Instant::from_millis);
        let mut timer = RetransmitTimer { at: None, interval: Duration::from_millis(200) };
        timer.start(ms(0), ticks);
        let first = timer.at;
        timer.start(ms(100), ticks);
        assert_eq!(timer.at, first);
        assert!(!timer.take_expired(ms(100)));
        assert!(timer.take_expired(ms(300)) && !timer.take_expired(ms(300)));
        timer.restart(ms(300), ticks, true);
        assert_eq!(timer.at, None);
    }
}
