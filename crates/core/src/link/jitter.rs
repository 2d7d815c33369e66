//! Jitter that reorders: some packets take longer, and later ones overtake them.

use crate::rng::Rng;
use crate::time::Duration;

/// Parameters of the jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterParams {
    /// Probability (0 to 1) that a packet takes longer.
    pub share: f64,
    /// The further delay of such a packet is uniform between 0 and this.
    pub most: Duration,
}

/// The jitter of one direction.
#[derive(Clone, Debug)]
pub(super) struct Jitter {
    params: JitterParams,
    rng: Rng,
}

impl Jitter {
    pub(super) fn new(params: JitterParams, rng: Rng) -> Jitter {
        Jitter { params, rng }
    }

    /// The further delay of the next packet.
    pub(super) fn next_delay(&mut self) -> Duration {
        if !self.rng.chance(self.params.share) {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.params.most.as_secs_f64() * self.rng.uniform())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::link::{Bottleneck, Direction, DirectionParams, Link, Loss, PacketId, QueueLimit};
    use crate::time::Instant;

    /// A link of 10 ms with jitter, and 2000 packets, one each ms, polled every `step` ms: number and time of arrival.
    fn arrivals(params: JitterParams, step: u64) -> Vec<(u64, Instant)> {
        let bottleneck = Bottleneck::Rate { bit_s: 8e7 };
        let (delay, queue) = (Duration::from_millis(10), QueueLimit::Packets(100));
        let direction = DirectionParams { bottleneck, delay, loss: Loss::NONE, queue, codel: None };
        let mut link = Link::new(1, "jitter", direction.clone(), direction);
        link.set_jitter(1, "jitter", params);
        let mut found = Vec::new();
        for ms in 0..2200 {
            let now = Instant::from_millis(ms);
            if ms < 2000 {
                assert_eq!(link.send(now, Direction::Up, PacketId(ms), 1000), Ok(()));
            }
            while let Some(exit) = (ms % step == 0).then(|| link.poll(now)).flatten() {
                found.push((exit.packet.0, exit.at));
            }
        }
        found
    }

    #[test]
    fn later_packets_overtake_those_that_take_longer() {
        let found = arrivals(JitterParams { share: 0.1, most: Duration::from_millis(20) }, 1);
        assert_eq!(found.len(), 2000);
        let delay_ms = |(packet, at): &(u64, Instant)| at.since(Instant::from_millis(*packet)).as_secs_f64() * 1000.0;
        let late = found.iter().filter(|arrival| delay_ms(arrival) > 10.2).count();
        assert!((150..250).contains(&late), "{late} packets took longer");
        assert!(found.iter().all(|arrival| (10.0..31.0).contains(&delay_ms(arrival))));
        let overtaken = found.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        assert!(overtaken > 100, "{overtaken} packets were overtaken");
        assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn a_packet_arrives_at_the_same_time_however_late_the_link_is_polled() {
        let params = JitterParams { share: 0.5, most: Duration::from_millis(40) };
        let (mut often, mut seldom) = (arrivals(params, 1), arrivals(params, 50));
        often.sort_unstable();
        seldom.sort_unstable();
        assert_eq!(often, seldom);
    }

    #[test]
    fn a_link_with_jitter_wakes_up_for_a_packet_that_overtakes_the_first() {
        let bottleneck = Bottleneck::Rate { bit_s: 8e6 };
        let (delay, queue) = (Duration::from_millis(10), QueueLimit::Packets(100));
        let direction = DirectionParams { bottleneck, delay, loss: Loss::NONE, queue, codel: None };
        let mut link = Link::new(1, "jitter", direction.clone(), direction);
        link.set_jitter(1, "jitter", JitterParams { share: 0.5, most: Duration::from_millis(400) });
        let mut exits = 0;
        for packet in 0..50 {
            assert_eq!(link.send(Instant::ZERO, Direction::Up, PacketId(packet), 1000), Ok(()));
        }
        while let Some(now) = link.next_wakeup() {
            while let Some(exit) = link.poll(now) {
                assert_eq!(exit.at, now, "released late");
                exits += 1;
            }
        }
        assert_eq!(exits, 50);
    }
}
