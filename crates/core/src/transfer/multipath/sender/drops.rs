//! Objects that are dropped rather than sent late.

use super::Sender;
use crate::time::{Duration, Instant};
use crate::transfer::multipath::bytes;

impl Sender {
    /// The object may be dropped: once it is expected after its deadline, it is abandoned, so that others arrive in time.
    pub fn allow_drop(&mut self, number: u32) {
        self.open.iter_mut().filter(|open| open.number == number).for_each(|open| open.is_droppable = true);
    }

    /// The first object that may be dropped and is expected late: what is due before it goes first, over all paths that
    /// deliver. None while the rate of one of them is unknown, and none for which nothing else waits: a rate may be that of
    /// a time that has passed, and shows only by sending.
    pub(super) fn next_drop(&self, now: Instant) -> Option<u32> {
        if !self.open.iter().any(|open| open.is_droppable) {
            return None;
        }
        let (mut rate, mut waiting, mut rtt_s) = (0.0, 0, f64::INFINITY);
        for path in self.paths.iter().filter(|path| path.is_open() && !path.is_stalled(now)) {
            rate += path.bytes_s()?.max(path.delivered_bytes_s());
            waiting += path.flight_bytes();
            rtt_s = path.min_rtt_s().min(rtt_s);
        }
        if rate <= 0.0 {
            return None;
        }
        let mut is_first = true;
        self.active().find_map(|open| {
            let is_next = is_first;
            is_first &= open.is_in_flight();
            waiting += bytes(open.size, &open.missing);
            let expected = now + Duration::from_secs_f64((waiting as f64 / rate).max(rtt_s) - rtt_s / 2.0);
            let is_late = open.deadline.is_some_and(|deadline| deadline < expected);
            (open.is_droppable && !is_next && !open.is_in_flight() && is_late).then_some(open.number)
        })
    }
}
