//! Messages of one size that are due periodically.

use crosslane_core::time::{Duration, Instant};

use super::{Source, Span, Write};

/// Time for which due messages wait for the connection before they are skipped.
pub const BACKLOG: Duration = Duration::from_secs(1);

/// A message is due at `start + number × period`, before the stop. While the
/// connection accepts no data, due messages wait for at most [`BACKLOG`], also
/// beyond the stop; older ones are skipped and counted.
#[derive(Debug)]
pub struct Paced {
    size_bytes: u64,
    /// Zero: as fast as the connection accepts them.
    period: Duration,
    stop: Instant,
    due: Option<Instant>,
    /// Each message is answered before the next is written.
    is_answered: bool,
    awaits_answer: bool,
    skipped: u64,
}

impl Paced {
    /// Messages of this size and period; with `is_answered`, each waits for the
    /// answer to the one before.
    pub fn new(size_bytes: u32, period_ns: u64, span: Span, is_answered: bool) -> Paced {
        Paced {
            size_bytes: size_bytes.into(),
            period: Duration::from_nanos(period_ns),
            stop: span.stop,
            due: Some(span.start),
            is_answered,
            awaits_answer: false,
            skipped: 0,
        }
    }

    /// The due time of the message to write at `now`, after those that waited too
    /// long are skipped.
    fn skip_late(&mut self, due: Instant, now: Instant) -> Instant {
        if self.period.is_zero() {
            return now;
        }
        let late = now.min(self.stop + BACKLOG).since(due + BACKLOG).as_nanos() / self.period.as_nanos();
        self.skipped += late as u64;
        due + self.period * late as u32
    }
}

impl Source for Paced {
    fn next_write(&self) -> Option<Instant> {
        self.due.filter(|_| !self.awaits_answer)
    }

    fn poll(&mut self, now: Instant) -> Option<Write> {
        let due = self.next_write().filter(|due| *due <= now)?;
        let due = self.skip_late(due, now);
        if due >= self.stop {
            self.due = None;
            return None;
        }
        self.due = Some(due + self.period);
        self.awaits_answer = self.is_answered;
        Some(Write::Message(self.size_bytes))
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn on_answer(&mut self) {
        self.awaits_answer = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { start: Instant::from_millis(100), stop: Instant::from_millis(5000) };
    const MS: u64 = 1_000_000;

    fn due_ms(source: &Paced) -> Option<u64> {
        source.next_write().map(|due| due.as_nanos() / MS)
    }

    #[test]
    fn messages_are_due_periodically_until_the_stop() {
        let mut source = Paced::new(500, 2000 * MS, SPAN, false);
        let mut written = Vec::new();
        while let Some(due) = source.next_write() {
            written.extend(source.poll(due).map(|write| (due.as_nanos() / MS, write)));
        }
        assert_eq!(written, [100, 2100, 4100].map(|due| (due, Write::Message(500))));
    }

    #[test]
    fn messages_that_waited_longer_than_the_backlog_are_skipped_and_counted() {
        let mut source = Paced::new(500, 10 * MS, SPAN, false);
        assert!(source.poll(Instant::from_millis(1600)).is_some());
        assert_eq!((source.skipped(), due_ms(&source)), (50, Some(610)));
    }

    #[test]
    fn a_message_that_is_due_before_the_stop_is_written_after_it_unless_it_waited_too_long() {
        let mut source = Paced::new(500, 10 * MS, SPAN, false);
        for due in (100..4990).step_by(10) {
            assert!(source.poll(Instant::from_millis(due)).is_some());
        }
        assert_eq!(due_ms(&source), Some(4990));
        assert!(source.poll(Instant::from_millis(5003)).is_some());
        assert!(source.poll(Instant::from_millis(5003)).is_none());
        let mut source = Paced::new(500, 10 * MS, SPAN, false);
        assert!(source.poll(Instant::from_millis(9000)).is_none());
        assert_eq!((source.skipped(), due_ms(&source)), (490, None));
    }

    #[test]
    fn an_answered_message_is_followed_by_the_next_after_its_answer() {
        let mut source = Paced::new(500, 10 * MS, SPAN, true);
        assert!(source.poll(Instant::from_millis(100)).is_some());
        assert_eq!((due_ms(&source), source.poll(Instant::from_millis(120))), (None, None));
        source.on_answer();
        assert_eq!(due_ms(&source), Some(110));
    }
}
