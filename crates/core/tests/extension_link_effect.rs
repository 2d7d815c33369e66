//! A link effect that the crate does not have, by its public types: jitter. An effect
//! that changes a link over time sets its parameters; one that decides for each
//! packet is a variant of `Loss`.

use crosslane_core::link::{Bottleneck, Direction, DirectionParams, Link, Loss, PacketId, QueueLimit};
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

/// A new one-way delay at regular intervals, uniform in a range.
struct Jitter {
    delay_ms: [f64; 2],
    period: Duration,
    next: Instant,
    rng: Rng,
}

impl Jitter {
    fn next_wakeup(&self) -> Instant {
        self.next
    }

    fn apply(&mut self, now: Instant, link: &mut Link) {
        let [least, most] = self.delay_ms;
        let delay = Duration::from_secs_f64((least + (most - least) * self.rng.uniform()) / 1000.0);
        for direction in Direction::BOTH {
            let params = DirectionParams { delay, ..link.params(direction).clone() };
            link.set(now, direction, params);
        }
        self.next = now + self.period;
    }
}

#[test]
fn an_effect_of_ones_own_delays_packets_and_keeps_their_order() {
    let bottleneck = Bottleneck::Rate { bit_s: 8e6 };
    let queue = QueueLimit::Packets(100);
    let params = DirectionParams { bottleneck, delay: Duration::ZERO, loss: Loss::NONE, queue, codel: None };
    let mut link = Link::new(1, "jitter", params.clone(), params);
    let rng = Rng::new(1, "jitter");
    let mut jitter = Jitter { delay_ms: [30.0, 70.0], period: Duration::from_millis(100), next: Instant::ZERO, rng };
    let mut delays_ms = Vec::new();
    for number in 0..200 {
        let sent = Instant::from_millis(10 * number);
        if jitter.next_wakeup() <= sent {
            jitter.apply(sent, &mut link);
        }
        assert_eq!(link.send(sent, Direction::Up, PacketId(number), 1000), Ok(()));
        while let Some(exit) = link.poll(sent) {
            assert_eq!(exit.packet, PacketId(delays_ms.len() as u64));
            delays_ms.push(exit.at.since(Instant::from_millis(10 * exit.packet.0)).as_secs_f64() * 1000.0);
        }
    }
    let (least, most) = delays_ms.iter().fold((f64::MAX, 0.0), |(least, most), &ms| (ms.min(least), ms.max(most)));
    assert!((31.0..45.0).contains(&least) && (55.0..71.1).contains(&most), "{least} to {most} ms");
}
