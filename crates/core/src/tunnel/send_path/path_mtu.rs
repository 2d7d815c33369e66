//! The path MTU of one path, found by probes that the other end reports like any
//! packet (RFC 8899): what routers say of it by ICMP, which anybody can forge,
//! counts for nothing.
//!
//! The largest size that is configured is believed at first and confirmed by one
//! probe. A size of which [`MAX_PROBES`] in a row are lost does not pass; what
//! does is then searched by halves. Packets that get lost by their size begin the
//! search again (a black hole), and a timer looks whether the path takes more.

use crate::time::{Duration, Instant};

/// What every path carries, outer IP header included, in bytes (RFC 791; IPv6 has more).
const MIN_BYTES: u32 = 576;
/// Where a search begins: most paths carry it (RFC 8200, section 5).
const BASE_BYTES: u32 = 1280;
/// Probes of one size that are lost before it is given up (RFC 8899, section 5.1.2: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// A search ends when it is known so nearly, in bytes.
const STEP_BYTES: u32 = 8;
/// When to look whether the path carries more (PMTU_RAISE_TIMER, 600 s there): a vehicle's way to its gateway changes
/// more often than a server's, and a probe a minute costs nothing.
const RAISE_INTERVAL: Duration = Duration::from_secs(60);
/// Long packets that are lost, and none as long delivered, before the size is confirmed again.
const BLACK_HOLE_LOSSES: u32 = 3;
/// What became of a probe is known by then, or will not be (PROBE_TIMER): the path was given up meanwhile.
const PROBE_TIMER: Duration = Duration::from_secs(2);

/// The path MTU of one path. All sizes are of datagrams on the wire, outer IP header included, in bytes.
#[derive(Clone, Debug)]
pub(in super::super) struct PathMtu {
    max: u32,
    passes: u32,
    settled: u32,
    search: Option<Search>,
    /// When the probe left of which nothing is known yet.
    probed: Option<Instant>,
    raise_at: Instant,
    /// The shortest packet that was lost since one as long was delivered, and how many were.
    lost: Option<(u32, u32)>,
}

/// `low` passes, `high` does not; `size` is being probed.
#[derive(Clone, Copy, Debug)]
struct Search {
    low: u32,
    high: u32,
    size: u32,
    tries: u8,
}

impl Search {
    fn of(low: u32, high: u32, size: u32) -> Search {
        Search { low, high, size, tries: 0 }
    }

    /// The next size to probe; none if it is known nearly enough.
    fn next(self) -> Option<Search> {
        let Search { low, high, .. } = self;
        if high.saturating_sub(low) <= STEP_BYTES {
            return None;
        }
        let begins = low < BASE_BYTES && high > BASE_BYTES;
        Some(Search::of(low, high, if begins { BASE_BYTES } else { low.midpoint(high) }))
    }
}

impl PathMtu {
    /// Of a path that is believed to carry `most` until the first probe tells.
    pub(in super::super) fn new(max: u32) -> PathMtu {
        PathMtu {
            max,
            passes: max,
            settled: max,
            search: Some(Search::of(MIN_BYTES.min(max), max + 1, max)),
            probed: None,
            raise_at: Instant::ZERO,
            lost: None,
        }
    }

    /// What is known to pass: longer packets may have to be cut.
    pub(in super::super) fn passes(&self) -> u32 {
        self.passes
    }

    /// The same as the last search left it: what packets inside are to go by, so that
    /// they do not follow a search.
    pub(in super::super) fn settled(&self) -> u32 {
        self.settled
    }

    /// The size of a probe that is to leave now; it is taken to do so.
    pub(in super::super) fn probe(&mut self, now: Instant) -> Option<u32> {
        if self.probed.is_some_and(|at| now.since(at) < PROBE_TIMER) {
            return None;
        }
        if self.search.is_none() && self.settled < self.max && now >= self.raise_at {
            self.search = Some(Search::of(self.passes, self.max + 1, self.max));
        }
        let size = self.search?.size;
        self.probed = Some(now);
        Some(size)
    }

    /// A probe of this size was reported: it came or was lost.
    pub(in super::super) fn on_probe(&mut self, now: Instant, size: u32, is_lost: bool) {
        self.probed = None;
        let Some(mut search) = self.search.filter(|search| search.size == size) else { return };
        if is_lost {
            search.tries += 1;
            if search.tries < MAX_PROBES {
                self.search = Some(search);
                return;
            }
            search.high = size;
            self.passes = if self.passes >= size { search.low } else { self.passes };
        } else {
            search.low = size;
            self.passes = size;
        }
        self.lost = None;
        self.search = search.next();
        if self.search.is_none() {
            self.settled = self.passes;
            self.raise_at = now + RAISE_INTERVAL;
        }
    }

    /// A packet of this size was reported: it came or was lost.
    pub(in super::super) fn on_packet(&mut self, bytes: u32, is_lost: bool) {
        match (is_lost, self.lost) {
            (false, Some((shortest, _))) if bytes >= shortest => self.lost = None,
            (false, _) => {}
            (true, _) if bytes <= MIN_BYTES => {}
            (true, lost) => {
                let (shortest, count) = lost.unwrap_or((bytes, 0));
                self.lost = Some((shortest.min(bytes), count.saturating_add(1)));
                if count + 1 >= BLACK_HOLE_LOSSES && self.search.is_none() {
                    self.search = Some(Search::of(MIN_BYTES.min(self.passes), self.passes + 1, self.passes));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Probes over a path that carries `carries` bytes, one each 10 ms; how many probes left until it asked no more.
    fn run(mtu: &mut PathMtu, now: &mut Instant, carries: u32) -> u32 {
        for count in 0..200 {
            let Some(size) = mtu.probe(*now) else { return count };
            *now = *now + Duration::from_millis(10);
            mtu.on_probe(*now, size, size > carries);
        }
        panic!("it probes for ever: {mtu:?}");
    }

    #[test]
    fn what_is_configured_is_confirmed_by_one_probe() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        assert_eq!((mtu.passes(), mtu.settled()), (1500, 1500));
        assert_eq!(run(&mut mtu, &mut now, 1500), 1);
        assert_eq!((mtu.passes(), mtu.settled()), (1500, 1500));
    }

    #[test]
    fn a_path_that_carries_less_is_found_out_within_a_step_and_never_overrated() {
        for max in [576, 600, 1280, 1500, 9216] {
            for carries in (MIN_BYTES..=max).step_by(7).chain([max]) {
                let (mut mtu, mut now) = (PathMtu::new(max), at(0));
                let probes = run(&mut mtu, &mut now, carries);
                assert!(mtu.settled() <= carries && mtu.settled() + STEP_BYTES >= carries, "{max} {carries}: {mtu:?}");
                assert!(probes <= 45 && mtu.settled() == mtu.passes(), "{max} {carries}: {probes} probes");
            }
        }
    }

    #[test]
    fn two_lost_probes_are_chance() {
        let mut mtu = PathMtu::new(1500);
        for n in 0..2 {
            assert_eq!(mtu.probe(at(n)), Some(1500));
            mtu.on_probe(at(n), 1500, true);
            assert_eq!(mtu.passes(), 1500);
        }
        assert_eq!(mtu.probe(at(2)), Some(1500));
        mtu.on_probe(at(2), 1500, false);
        assert_eq!((mtu.probe(at(3)), mtu.settled()), (None, 1500));
    }

    #[test]
    fn packets_inside_do_not_follow_a_search() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        (0..3).for_each(|_| mtu.on_packet(1400, true));
        for _ in 0..3 {
            assert_eq!(mtu.probe(now), Some(1500));
            mtu.on_probe(now, 1500, true);
        }
        assert_eq!((mtu.passes(), mtu.settled()), (MIN_BYTES, 1500));
        run(&mut mtu, &mut now, 1300);
        assert!((1292..=1300).contains(&mtu.settled()), "{mtu:?}");
    }

    #[test]
    fn long_packets_that_are_lost_while_short_ones_come_are_a_black_hole() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        for _ in 0..2 {
            mtu.on_packet(1400, true);
            mtu.on_packet(1200, false);
        }
        assert_eq!(mtu.probe(now), None, "it may be chance");
        mtu.on_packet(1400, true);
        run(&mut mtu, &mut now, 1300);
        assert!(mtu.settled() <= 1300);
    }

    #[test]
    fn loss_that_spares_none_by_size_starts_nothing() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        for _ in 0..100 {
            mtu.on_packet(1400, true);
            mtu.on_packet(1400, true);
            mtu.on_packet(1400, false);
            mtu.on_packet(100, true);
        }
        assert_eq!(mtu.probe(now), None);
    }

    #[test]
    fn a_path_that_carries_more_again_is_found_out_within_a_minute() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1300);
        let settled = mtu.settled();
        now = now + RAISE_INTERVAL - Duration::from_millis(1);
        assert_eq!(mtu.probe(now), None);
        now = now + Duration::from_millis(1);
        assert_eq!(run(&mut mtu, &mut now, 1400) > 3, mtu.settled() > 1390);
        assert!((1392..=1400).contains(&mtu.settled()), "from {settled}: {mtu:?}");
        now = now + RAISE_INTERVAL;
        assert_eq!(run(&mut mtu, &mut now, 1500), 1);
        assert_eq!(mtu.settled(), 1500);
        now = now + RAISE_INTERVAL * 100;
        assert_eq!(mtu.probe(now), None, "there is nothing to gain");
    }

    #[test]
    fn a_probe_of_which_nothing_is_heard_is_repeated_and_does_not_count() {
        let mut mtu = PathMtu::new(1500);
        for n in 0..10 {
            assert_eq!(mtu.probe(at(2000 * n)), Some(1500));
            assert_eq!(mtu.probe(at(2000 * n + 1999)), None);
        }
        assert_eq!(mtu.passes(), 1500);
        mtu.on_probe(at(20_000), 999, true);
        assert_eq!(mtu.probe(at(20_000)), Some(1500), "a report of something else changes nothing");
    }
}
