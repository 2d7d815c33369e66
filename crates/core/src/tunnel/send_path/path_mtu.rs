//! The path MTU of one path, found by probes that the peer reports like any packet (RFC 8899). ICMP
//! messages of routers are ignored, since they can be forged.
//!
//! The configured maximum is assumed at first and confirmed by one probe. A size does not pass if
//! [`MAX_PROBES`] consecutive probes of it are lost; bisection then finds the size that does. Losses of
//! long packets start the search again (black-hole detection), and a timer checks whether the path carries
//! more.

use crate::time::{Duration, Instant};

/// Every path carries this size, outer IP header included, in bytes (RFC 791; IPv6 has more).
const MIN_BYTES: u32 = 576;
/// First size of a search: most paths carry it (RFC 8200, section 5).
const BASE_BYTES: u32 = 1280;
/// Lost probes after which a size does not pass (RFC 8899, section 5.1.2: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// Resolution of a search, in bytes.
const STEP_BYTES: u32 = 8;
/// Interval of probes for a larger size (PMTU_RAISE_TIMER, there 600 s): a vehicle's path to its gateway
/// changes more often than a server's, and a probe per minute costs nothing.
const RAISE_INTERVAL: Duration = Duration::from_secs(60);
/// Long packets lost, with none as long delivered, after which the size is confirmed again.
const BLACK_HOLE_LOSSES: u32 = 3;
/// Timeout of a probe whose fate is not reported (PROBE_TIMER): the path was declared down meanwhile.
const PROBE_TIMER: Duration = Duration::from_secs(2);

/// The path MTU of one path. All sizes are of datagrams on the wire, outer IP header included, in bytes.
#[derive(Clone, Debug)]
pub(in super::super) struct PathMtu {
    max: u32,
    /// The size confirmed to pass; longer packets may be fragmented.
    pub(in super::super) passes: u32,
    /// The result of the last search. Inner packets follow it, so that their size does not change during a
    /// search.
    pub(in super::super) settled: u32,
    search: Option<Search>,
    /// When the probe was sent whose result is not known yet.
    probed: Option<Instant>,
    raise_at: Instant,
    /// The shortest packet lost since one as long was delivered, and the number of losses.
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

    /// The next size to probe; `None` if the resolution is reached.
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
    /// The state of a path that is assumed to carry `max` until the first probe.
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

    /// The size of a probe to send now; the caller sends it. On a path that is not in use, none looks for a larger
    /// size.
    pub(in super::super) fn probe(&mut self, now: Instant, is_in_use: bool) -> Option<u32> {
        if self.probed.is_some_and(|at| now.since(at) < PROBE_TIMER) {
            return None;
        }
        if self.search.is_none() && is_in_use && self.settled < self.max && now >= self.raise_at {
            self.search = Some(Search::of(self.passes, self.max + 1, self.max));
        }
        let size = self.search?.size;
        self.probed = Some(now);
        Some(size)
    }

    /// Applies the report of a probe of this size.
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

    /// Applies the report of a packet of this size.
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

    /// Runs probes over a path that carries `carries` bytes, one each 10 ms; returns the number of probes.
    fn run(mtu: &mut PathMtu, now: &mut Instant, carries: u32) -> u32 {
        for count in 0..200 {
            let Some(size) = mtu.probe(*now, true) else { return count };
            *now = *now + Duration::from_millis(10);
            mtu.on_probe(*now, size, size > carries);
        }
        panic!("it never stops probing: {mtu:?}");
    }

    #[test]
    fn the_configured_size_is_confirmed_by_one_probe() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        assert_eq!((mtu.passes, mtu.settled), (1500, 1500));
        assert_eq!(run(&mut mtu, &mut now, 1500), 1);
        assert_eq!((mtu.passes, mtu.settled), (1500, 1500));
    }

    #[test]
    fn a_smaller_path_mtu_is_found_within_the_resolution_and_never_exceeded() {
        for max in [576, 600, 1280, 1500, 9216] {
            for carries in (MIN_BYTES..=max).step_by(7).chain([max]) {
                let (mut mtu, mut now) = (PathMtu::new(max), at(0));
                let probes = run(&mut mtu, &mut now, carries);
                assert!(mtu.settled <= carries && mtu.settled + STEP_BYTES >= carries, "{max} {carries}: {mtu:?}");
                assert!(probes <= 45 && mtu.settled == mtu.passes, "{max} {carries}: {probes} probes");
            }
        }
    }

    #[test]
    fn two_lost_probes_change_nothing() {
        let mut mtu = PathMtu::new(1500);
        for n in 0..2 {
            assert_eq!(mtu.probe(at(n), true), Some(1500));
            mtu.on_probe(at(n), 1500, true);
            assert_eq!(mtu.passes, 1500);
        }
        assert_eq!(mtu.probe(at(2), true), Some(1500));
        mtu.on_probe(at(2), 1500, false);
        assert_eq!((mtu.probe(at(3), true), mtu.settled), (None, 1500));
    }

    #[test]
    fn the_inner_packet_size_does_not_follow_a_search() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        (0..3).for_each(|_| mtu.on_packet(1400, true));
        for _ in 0..3 {
            assert_eq!(mtu.probe(now, true), Some(1500));
            mtu.on_probe(now, 1500, true);
        }
        assert_eq!((mtu.passes, mtu.settled), (MIN_BYTES, 1500));
        run(&mut mtu, &mut now, 1300);
        assert!((1292..=1300).contains(&mtu.settled), "{mtu:?}");
    }

    #[test]
    fn lost_long_packets_with_short_ones_delivered_are_a_black_hole() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        for _ in 0..2 {
            mtu.on_packet(1400, true);
            mtu.on_packet(1200, false);
        }
        assert_eq!(mtu.probe(now, true), None, "two losses may be random");
        mtu.on_packet(1400, true);
        run(&mut mtu, &mut now, 1300);
        assert!(mtu.settled <= 1300);
    }

    #[test]
    fn loss_independent_of_size_starts_no_search() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1500);
        for _ in 0..100 {
            mtu.on_packet(1400, true);
            mtu.on_packet(1400, true);
            mtu.on_packet(1400, false);
            mtu.on_packet(100, true);
        }
        assert_eq!(mtu.probe(now, true), None);
    }

    #[test]
    fn a_larger_path_mtu_is_found_within_a_minute() {
        let (mut mtu, mut now) = (PathMtu::new(1500), at(0));
        run(&mut mtu, &mut now, 1300);
        let settled = mtu.settled;
        now = now + RAISE_INTERVAL - Duration::from_millis(1);
        assert_eq!(mtu.probe(now, true), None);
        now = now + Duration::from_millis(1);
        assert_eq!(mtu.probe(now, false), None, "the path is not in use");
        assert_eq!(run(&mut mtu, &mut now, 1400) > 3, mtu.settled > 1390);
        assert!((1392..=1400).contains(&mtu.settled), "from {settled}: {mtu:?}");
        now = now + RAISE_INTERVAL;
        assert_eq!(run(&mut mtu, &mut now, 1500), 1);
        assert_eq!(mtu.settled, 1500);
        now = now + RAISE_INTERVAL * 100;
        assert_eq!(mtu.probe(now, true), None, "there is nothing to gain");
    }

    #[test]
    fn an_unreported_probe_is_repeated_and_does_not_count() {
        let mut mtu = PathMtu::new(1500);
        for n in 0..10 {
            assert_eq!(mtu.probe(at(2000 * n), true), Some(1500));
            assert_eq!(mtu.probe(at(2000 * n + 1999), true), None);
        }
        assert_eq!(mtu.passes, 1500);
        mtu.on_probe(at(20_000), 999, true);
        assert_eq!(mtu.probe(at(20_000), true), Some(1500), "a report of another size changes nothing");
    }
}
