//! Echo requests of our own over paths that carry nothing: which path is due, which requests wait for an answer, and
//! what an answer shows.
//!
//! A path that delivers data is not probed: data is evidence enough. An answer to a later request shows that an earlier
//! one without an answer is lost. An address that has never answered over a path says nothing of it: requests become
//! rare there, and that is reported once.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::path::{Echo, PathId, Transport};
use crate::recent::push_recent;
use crate::time::{Duration, Instant};

/// Period of the requests over a path.
pub const DEFAULT_PERIOD: Duration = Duration::from_millis(200);
/// Over a path with a price or a data volume the period is so many times as long.
pub const METERED_FACTOR: u32 = 10;
/// Length of a request and of its answer over IPv4: IP header and ICMP header (RFC 792), in bytes.
pub const IP_BYTES: u16 = 28;
/// Maximum number of requests over a path that wait for an answer; older ones count as lost.
const MAX_WAITING: usize = 64;
/// After so many requests without any answer over a path, the address does not answer over it.
const NEVER: u32 = 25;
/// Period of the requests over such a path, if its period is not longer.
const NEVER_PERIOD: Duration = Duration::from_secs(10);
/// What was observed of the subflows is forgotten after this time, so that those that are gone take no room: each loses
/// what one sample would have shown.
const FORGET: Duration = Duration::from_secs(60);

/// A path, a connection, and the peer's address.
type Key = (PathId, u32, SocketAddr);

/// The requests over all paths.
#[derive(Clone, Debug, Default)]
pub struct Echoes {
    paths: Vec<PathEchoes>,
    /// Segments delivered and bytes received on each subflow.
    carried: BTreeMap<Key, (u32, u64)>,
    forgotten: Instant,
}

/// The requests over one path.
#[derive(Clone, Debug, Default)]
struct PathEchoes {
    /// `None`: none are sent.
    period: Option<Duration>,
    has_address: bool,
    /// When data was last delivered or received.
    carried: Option<Instant>,
    sent: Option<Instant>,
    number: u16,
    waiting: VecDeque<(u16, Instant)>,
    waiting_since: Option<Instant>,
    has_answered: bool,
    /// Requests since the last answer.
    unanswered: u32,
    is_reported: bool,
    counts: EchoCounts,
}

/// Packets of a path since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounts {
    /// Requests sent.
    pub sent: u64,
    /// Answers received.
    pub answered: u64,
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Due {
    pub(crate) path: PathId,
    /// Its sequence number.
    pub(crate) number: u16,
    /// What it makes of the path's state.
    pub(crate) sample: Echo,
    /// How many had no answer, if it is the first time that they are too many.
    pub(crate) unanswered: Option<u32>,
}

impl PathEchoes {
    fn period(&self) -> Option<Duration> {
        let is_vain = !self.has_answered && self.unanswered >= NEVER;
        self.period.map(|period| if is_vain { period.max(NEVER_PERIOD) } else { period })
    }

    fn due(&self) -> Option<Instant> {
        let period = self.period().filter(|_| self.has_address)?;
        Some(self.sent.max(self.carried).map_or(Instant::ZERO, |last| last + period))
    }

    fn send(&mut self, now: Instant) -> (Echo, Option<u32>) {
        self.number = self.number.wrapping_add(1);
        push_recent(&mut self.waiting, MAX_WAITING, (self.number, now));
        self.waiting_since = self.waiting_since.or(Some(now));
        self.sent = Some(now);
        self.counts.sent += 1;
        let unanswered =
            (self.unanswered >= NEVER && !self.has_answered && !self.is_reported).then_some(self.unanswered);
        self.is_reported |= unanswered.is_some();
        self.unanswered = self.unanswered.saturating_add(1);
        (Echo { waiting_since: self.waiting_since, rtt: None }, unanswered)
    }

    fn on_answer(&mut self, now: Instant, number: u16) -> Option<Echo> {
        let place = self.waiting.iter().position(|(of, _)| *of == number)?;
        let (_, sent) = self.waiting.drain(..=place).next_back()?;
        self.waiting_since = self.waiting.front().map(|(_, at)| *at);
        (self.has_answered, self.unanswered) = (true, 0);
        self.counts.answered += 1;
        Some(Echo { waiting_since: self.waiting_since, rtt: Some(now.since(sent)) })
    }

    fn on_data(&mut self, now: Instant) {
        self.carried = Some(now);
        self.waiting.clear();
        self.waiting_since = None;
    }

    /// Another network may be behind another address.
    fn set_address(&mut self, has_address: bool) {
        let PathEchoes { period, number, counts, is_reported, .. } = *self;
        *self = PathEchoes { period, has_address, number, counts, is_reported, ..PathEchoes::default() };
    }
}

impl Echoes {
    /// Requests with the period of each path, in the order of the ids; `None`: none over it.
    pub fn new(periods: &[Option<Duration>]) -> Echoes {
        let path = |period: &Option<Duration>| PathEchoes { period: *period, ..PathEchoes::default() };
        Echoes { paths: periods.iter().map(path).collect(), ..Echoes::default() }
    }

    fn of(&mut self, path: PathId) -> Option<&mut PathEchoes> {
        self.paths.get_mut(usize::from(path.0)).filter(|of| of.period.is_some())
    }

    /// A path has an address from which it can send, or has none any more.
    pub(crate) fn set_address(&mut self, path: PathId, has_address: bool) {
        if let Some(of) = self.of(path)
            && of.has_address != has_address
        {
            of.set_address(has_address);
        }
    }

    /// Processes the statistics of a subflow over a path.
    pub(crate) fn on_transport(&mut self, now: Instant, path: PathId, transport: &Transport) {
        if self.of(path).is_none() {
            return;
        }
        if now.since(self.forgotten) >= FORGET {
            self.carried.clear();
            self.forgotten = now;
        }
        let counts = (transport.delivered, transport.bytes_received);
        let last = self.carried.insert((path, transport.token, transport.peer), counts);
        if last.is_some_and(|last| last != counts)
            && let Some(of) = self.of(path)
        {
            of.on_data(now);
        }
    }

    /// Processes an answer; `None`: it answers nothing that is waited for.
    pub(crate) fn on_answer(&mut self, now: Instant, path: PathId, number: u16) -> Option<Echo> {
        self.of(path)?.on_answer(now, number)
    }

    /// The next request that is due, over a path that `may_send`; the caller sends it.
    pub(crate) fn poll(&mut self, now: Instant, may_send: impl Fn(PathId) -> bool) -> Option<Due> {
        for (path, of) in (0..).map(PathId).zip(&mut self.paths) {
            if of.due().is_none_or(|at| now < at) {
                continue;
            }
            if may_send(path) {
                let (sample, unanswered) = of.send(now);
                return Some(Due { path, number: of.number, sample, unanswered });
            }
            of.sent = Some(now);
        }
        None
    }

    /// When the next request is due.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.paths.iter().filter_map(PathEchoes::due).min()
    }

    /// Packets over a path; `None`: no requests are sent over it.
    pub fn counts(&self, path: PathId) -> Option<EchoCounts> {
        let of = self.paths.get(usize::from(path.0)).filter(|of| of.period.is_some())?;
        Some(of.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(0);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn echoes(period_ms: u64) -> Echoes {
        let mut echoes = Echoes::new(&[Some(Duration::from_millis(period_ms)), None]);
        echoes.set_address(PATH, true);
        echoes.set_address(PathId(1), true);
        echoes
    }

    fn send(echoes: &mut Echoes, ms: u64) -> Due {
        echoes.poll(at(ms), |_| true).unwrap()
    }

    #[test]
    fn requests_are_sent_each_period_over_a_path_that_has_an_address_and_a_period() {
        let mut echoes = echoes(200);
        assert_eq!(send(&mut echoes, 0).path, PATH);
        assert_eq!(echoes.poll(at(199), |_| true), None);
        assert_eq!(echoes.next_wakeup(), Some(at(200)));
        echoes.set_address(PATH, false);
        assert_eq!((echoes.poll(at(300), |_| true), echoes.next_wakeup()), (None, None));
        echoes.set_address(PATH, true);
        assert_eq!(send(&mut echoes, 300).number, 2, "an answer to the first one is none to it");
        assert_eq!(echoes.poll(at(600), |_| false), None);
        assert_eq!(echoes.next_wakeup(), Some(at(800)), "a path that is closed by its volume is not asked");
        assert_eq!(echoes.counts(PATH), Some(EchoCounts { sent: 2, answered: 0 }));
        assert_eq!(echoes.counts(PathId(1)), None);
    }

    #[test]
    fn data_over_a_path_takes_the_place_of_requests() {
        let mut echoes = echoes(200);
        let mut transport = Transport { delivered: 1, ..Transport::IDLE };
        echoes.on_transport(at(0), PATH, &transport);
        let number = send(&mut echoes, 0).number;
        transport.unacked = 5;
        echoes.on_transport(at(100), PATH, &transport);
        assert_eq!(echoes.next_wakeup(), Some(at(200)), "what is sent and not delivered proves nothing");
        transport.delivered = 2;
        echoes.on_transport(at(150), PATH, &transport);
        assert_eq!(echoes.next_wakeup(), Some(at(350)));
        assert_eq!(echoes.on_answer(at(160), PATH, number), None, "it is waited for no more");
        transport.bytes_received = 1;
        echoes.on_transport(at(300), PATH, &transport);
        assert_eq!(echoes.next_wakeup(), Some(at(500)));
    }

    #[test]
    fn an_answer_shows_the_rtt_and_that_earlier_requests_are_lost() {
        let mut echoes = echoes(100);
        let numbers = [0, 100, 200].map(|ms| send(&mut echoes, ms).number);
        let sample = echoes.on_answer(at(230), PATH, numbers[1]).unwrap();
        assert_eq!(sample, Echo { waiting_since: Some(at(200)), rtt: Some(Duration::from_millis(130)) });
        assert_eq!(echoes.on_answer(at(240), PATH, numbers[0]), None);
        let sample = echoes.on_answer(at(250), PATH, numbers[2]).unwrap();
        assert_eq!(sample, Echo { waiting_since: None, rtt: Some(Duration::from_millis(50)) });
        assert_eq!(echoes.on_answer(at(260), PATH, numbers[2]), None, "a duplicate");
    }

    #[test]
    fn the_oldest_request_is_remembered_though_the_table_is_full() {
        let mut echoes = echoes(100);
        for place in 0..10 * MAX_WAITING as u64 {
            // The first answers make it an address that answers.
            let due = send(&mut echoes, place * 100);
            if place == 0 {
                echoes.on_answer(at(20), PATH, due.number);
            } else {
                assert_eq!(due.sample.waiting_since, Some(at(100)));
                assert!(due.unanswered.is_none());
            }
        }
        assert_eq!(echoes.paths[0].waiting.len(), MAX_WAITING);
    }

    #[test]
    fn an_address_that_never_answered_is_reported_once_and_asked_rarely() {
        let mut echoes = echoes(100);
        let (mut now, mut reports, mut sent) = (at(0), Vec::new(), 0);
        while now < at(120_000) {
            let due = echoes.poll(now, |_| true).unwrap();
            reports.extend(due.unanswered);
            sent += 1;
            now = echoes.next_wakeup().unwrap();
        }
        assert_eq!(reports, [NEVER]);
        assert!((NEVER + 10..NEVER + 15).contains(&sent), "{sent}");
        let number = echoes.poll(now, |_| true).map_or(0, |due| due.number);
        assert!(echoes.on_answer(now, PATH, number).is_some());
        assert_eq!(echoes.next_wakeup(), Some(now + Duration::from_millis(100)), "it answers now");
    }
}
