//! Effects of other stations, bursts of loss and CoDel on the packets of a link.

use super::*;

/// Mbit/s of packets sent back to back.
fn saturated(share: f64) -> f64 {
    let mut link = both(shared_air(40.0, share));
    let (mut carried, end) = (0, ms(60_000));
    up(&mut link, 0, 0, 1500);
    up(&mut link, 0, 1, 1500);
    while let Some(exit) = link.next_wakeup().filter(|at| *at < end).and_then(|at| link.poll(at)) {
        carried += 1;
        assert_eq!(link.send(exit.at, Direction::Up, PacketId(carried + 1), 1500), Ok(()));
    }
    carried as f64 * 1500.0 * 8.0 / 60.0 / 1e6
}

#[test]
fn a_saturated_link_gets_its_share_of_the_air() {
    let full = saturated(1.0);
    for share in [0.9, 0.5, 0.1] {
        let measured = saturated(share) / full;
        assert!((measured / share - 1.0).abs() < 0.03, "{share}: {measured:.4}");
    }
}

#[test]
fn a_single_packet_waits_for_the_other_stations() {
    let one_try = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500).as_secs_f64();
    for share in [0.8, 0.25] {
        let mut link = both(shared_air(40.0, share));
        let mut waited = 0.0;
        for packet in 0..4000 {
            up(&mut link, packet * 100, packet, 1500);
            let exit = link.poll(ms(packet * 100 + 99)).expect("it leaves");
            waited += exit.at.since(ms(packet * 100)).as_secs_f64() - one_try;
        }
        let expected = one_try * (1.0 - share) / share;
        assert!((waited / 4000.0 / expected - 1.0).abs() < 0.06, "{share}: {waited}");
    }
}

#[test]
fn the_air_used_is_that_of_tries_and_of_other_transmissions() {
    let mut link = both(shared_air(-20.0, 0.5));
    up(&mut link, 0, 1, 1500);
    link.occupy(ms(500), Duration::from_millis(3));
    assert!(link.poll(ms(1000)).is_some_and(|exit| exit.tries == 7));
    let tries = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500) * 7;
    assert_eq!(link.air_used(), tries + Duration::from_millis(3));
}

const BURSTY: GilbertElliott = GilbertElliott { good: 0.0, bad: 1.0, to_bad: 0.01, to_good: 0.2 };

/// Which of `n` packets are lost.
fn lost(loss: Loss, n: u64) -> Vec<bool> {
    let params = DirectionParams { loss, ..plain(f64::INFINITY, 0) };
    let mut link = both(params.clone());
    let mut lost = Vec::new();
    for packet in 0..n {
        up(&mut link, packet, packet, 100);
        let exit = link.poll(ms(packet)).expect("it leaves");
        lost.push(exit.dropped == Some(DropReason::Loss));
        // The channel's state persists across a change of the parameters.
        link.set(ms(packet), Direction::Up, params.clone());
    }
    lost
}

#[test]
fn a_bursty_channel_loses_its_share_in_bursts_of_their_length() {
    let losses = lost(Loss::GilbertElliott(BURSTY), 200_000);
    let count = losses.iter().filter(|lost| **lost).count() as f64;
    let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    let mean = Loss::GilbertElliott(BURSTY).mean();
    assert!((mean - 0.01 / 0.21).abs() < 1e-12);
    assert!((count / 200_000.0 / mean - 1.0).abs() < 0.08, "{count} lost");
    assert!((count / bursts - 5.0).abs() < 0.3, "bursts of {}", count / bursts);
}

#[test]
fn the_long_run_share_counts_losses_in_both_states() {
    let loss = Loss::GilbertElliott(GilbertElliott { good: 0.02, bad: 0.5, to_bad: 0.1, to_good: 0.3 });
    let count = lost(loss, 100_000).into_iter().filter(|lost| *lost).count() as f64;
    assert!((loss.mean() - 0.14).abs() < 1e-12);
    assert!((count / 100_000.0 - 0.14).abs() < 0.005, "{count} lost");
    let still = Loss::GilbertElliott(GilbertElliott { to_bad: 0.0, to_good: 0.0, good: 0.1, bad: 1.0 });
    assert_eq!(still.mean(), 0.1);
}

const CODEL: CoDel = CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };

/// A sender like TCP Reno, with an RTT of 20 ms besides the queue, over 10 Mbit/s: mean
/// time in ms that packets wait, and the number of packets that CoDel dropped.
fn reno(codel: Option<CoDel>) -> (f64, usize) {
    let mut link = both(DirectionParams { codel, ..rate(10e6, 10, 0.0, QueueLimit::Packets(1000)) });
    let mut entered: Vec<Instant> = Vec::new();
    let (mut window, mut in_flight, mut recovers_at) = (10.0_f64, 0, Instant::ZERO);
    let (mut waits, mut dropped) = (Vec::new(), 0);
    let mut now = Instant::ZERO;
    while now < ms(60_000) {
        while f64::from(in_flight) < window.min(900.0) {
            if link.send(now, Direction::Up, PacketId(entered.len() as u64), 1500).is_err() {
                break;
            }
            entered.push(now);
            in_flight += 1;
        }
        now = link.next_wakeup().expect("packets are in flight");
        while let Some(exit) = link.poll(now) {
            in_flight -= 1;
            let sent = entered[exit.packet.0 as usize];
            if exit.dropped.is_some() {
                dropped += usize::from(exit.dropped == Some(DropReason::Codel));
                if sent >= recovers_at {
                    (window, recovers_at) = (window / 2.0, now);
                }
            } else {
                window += 1.0 / window;
                let wait_ms = now.since(sent).as_secs_f64() * 1e3 - 10.0 - 1.2;
                waits.extend((now > ms(10_000)).then_some(wait_ms));
            }
        }
    }
    (waits.iter().sum::<f64>() / waits.len() as f64, dropped)
}

#[test]
fn codel_holds_the_wait_of_a_saturated_link_near_its_target() {
    let (bloated, none) = reno(None);
    assert!(bloated > 100.0 && none == 0, "{bloated:.1} ms");
    let (wait_ms, dropped) = reno(Some(CODEL));
    assert!((2.0..10.0).contains(&wait_ms) && dropped > 20, "{wait_ms:.2} ms, {dropped} dropped");
}

#[test]
fn with_codel_the_queue_limit_applies_and_every_packet_leaves_in_order() {
    let mut link = both(DirectionParams { codel: Some(CODEL), ..rate(1e6, 1, 0.0, QueueLimit::Packets(50)) });
    let mut taken = Vec::new();
    for packet in 0..2000 {
        if link.send(ms(packet), Direction::Up, PacketId(packet), 1500).is_ok() {
            taken.push(packet);
        }
        assert!(link.waiting(Direction::Up).0 <= 50);
    }
    let left: Vec<Exit> = core::iter::from_fn(|| link.poll(ms(10_000))).collect();
    assert_eq!(left.iter().map(|exit| exit.packet.0).collect::<Vec<_>>(), taken);
    assert!(left.iter().filter(|exit| exit.dropped == Some(DropReason::Codel)).count() > 20);
    assert_eq!(link.waiting(Direction::Up), (0, 0));
}

#[test]
fn packets_dropped_by_codel_at_an_opportunity_leave_at_the_wakeup() {
    let codel = Some(CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(20) });
    let mut link = both(DirectionParams { codel, delay: Duration::from_millis(3), ..trace(&[100]) });
    for packet in 0..100 {
        up(&mut link, 0, packet, 1500);
    }
    let mut dropped = 0;
    while let Some(at) = link.next_wakeup() {
        let exit = link.poll(at).expect("a packet leaves");
        assert_eq!((exit.at, at.as_nanos() % 100_000_000), (at, 3_000_000));
        dropped += u32::from(exit.dropped == Some(DropReason::Codel));
    }
    assert!(dropped > 20, "{dropped}");
}
