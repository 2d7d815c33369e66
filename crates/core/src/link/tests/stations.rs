//! Several stations that share one channel and the vehicle's queue.

use super::*;
use alloc::string::String;

/// A link to stations with these SNRs and one-way delays in ms, with a queue of 20.
fn stations(of: &[(f64, u64)]) -> Link {
    limited(of, f64::INFINITY)
}

fn limited(of: &[(f64, u64)], limit_bit_s: f64) -> Link {
    let names: Vec<String> = (0..of.len()).map(|number| alloc::format!("unit{number}")).collect();
    let params = of.iter().map(|&(mean_snr_db, delay_ms)| {
        let Bottleneck::Ieee80211p(channel) = air(mean_snr_db).bottleneck else { unreachable!() };
        let params = DirectionParams {
            bottleneck: Bottleneck::Ieee80211p(Channel { limit_bit_s, ..channel }),
            ..rate(0.0, delay_ms, 0.0, QueueLimit::Packets(20))
        };
        [params.clone(), params]
    });
    Link::shared(1, "radio", names.iter().map(String::as_str).zip(params))
}

fn to(station: usize) -> Hop {
    Hop { station, direction: Direction::Up }
}

fn from(station: usize) -> Hop {
    Hop { station, direction: Direction::Down }
}

/// Mbit/s over each hop when a packet of 1500 bytes always waits for it.
fn saturated(link: &mut Link, hops: &[Hop], seconds: u64) -> Vec<f64> {
    let mut bytes = vec![0_u64; hops.len()];
    let send = |link: &mut Link, at: Instant, hop: usize| {
        let _ = link.send(at, hops[hop], PacketId(hop as u64), 1500);
    };
    for hop in 0..hops.len() {
        send(link, ms(0), hop);
        send(link, ms(0), hop);
    }
    while let Some(at) = link.next_wakeup().filter(|at| *at < ms(seconds * 1000)) {
        while let Some(exit) = link.poll(at) {
            let hop = exit.packet.0 as usize;
            bytes[hop] += if exit.dropped.is_none() { 1500 } else { 0 };
            send(link, at, hop);
        }
    }
    bytes.iter().map(|bytes| *bytes as f64 * 8e-6 / seconds as f64).collect()
}

#[test]
fn stations_of_one_channel_share_what_one_alone_carries() {
    let alone = saturated(&mut stations(&[(40.0, 0)]), &[to(0)], 20)[0];
    let three = saturated(&mut stations(&[(40.0, 0); 3]), &[from(0), from(1), from(2)], 20);
    let sum: f64 = three.iter().sum();
    assert!((sum / alone - 1.0).abs() < 0.02, "{three:?} of {alone}");
    assert!(three.iter().all(|rate| (rate / sum * 3.0 - 1.0).abs() < 0.02), "{three:?}");
    let halves = saturated(&mut stations(&[(40.0, 0); 2]), &[to(0), to(1)], 20);
    assert!((halves[0] / halves[1] - 1.0).abs() < 0.02, "{halves:?}");
}

#[test]
fn the_vehicles_queue_holds_what_is_for_any_station_and_each_station_has_its_own() {
    let mut link = stations(&[(40.0, 0), (40.0, 0)]);
    for packet in 0..21 {
        assert_eq!(link.send(ms(0), to(packet % 2), PacketId(packet as u64), 1500), Ok(()));
    }
    assert_eq!(link.waiting(to(1)).0, 20);
    assert_eq!(link.send(ms(0), to(1), PacketId(21), 1500), Err(DropReason::Queue));
    assert_eq!(link.send(ms(0), from(0), PacketId(22), 1500), Ok(()));
    assert_eq!(link.send(ms(0), from(1), PacketId(23), 1500), Ok(()));
}

#[test]
fn seven_tries_for_a_station_that_is_gone_delay_what_is_for_another() {
    let mut link = stations(&[(-100.0, 0), (40.0, 0)]);
    assert_eq!(link.send(ms(0), to(0), PacketId(0), 1500), Ok(()));
    assert_eq!(link.send(ms(0), to(1), PacketId(1), 1500), Ok(()));
    let left: Vec<Exit> = core::iter::from_fn(|| link.poll(ms(1000))).collect();
    let tries = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500);
    assert_eq!((left[0].dropped, left[0].tries, left[0].hop), (Some(DropReason::Retries), 7, to(0)));
    assert_eq!((left[1].dropped, left[1].hop), (None, to(1)));
    assert!(left[1].at.since(Instant::ZERO) > tries * 8);
    // What a station sends contends for the air by itself, between the tries.
    let mut link = stations(&[(-100.0, 0), (40.0, 0)]);
    assert_eq!(link.send(ms(0), to(0), PacketId(0), 1500), Ok(()));
    assert_eq!(link.send(ms(0), from(1), PacketId(1), 1500), Ok(()));
    let first = core::iter::from_fn(|| link.poll(ms(1000))).next();
    assert_eq!(first.map(|exit| exit.hop), Some(from(1)));
}

#[test]
fn the_delay_of_one_station_does_not_hold_up_another() {
    let mut link = stations(&[(40.0, 200), (40.0, 2)]);
    assert_eq!(link.send(ms(0), to(0), PacketId(0), 100), Ok(()));
    assert_eq!(link.send(ms(0), to(1), PacketId(1), 100), Ok(()));
    let left: Vec<Exit> = core::iter::from_fn(|| link.poll(ms(1000))).collect();
    assert_eq!(left.iter().map(|exit| exit.packet.0).collect::<Vec<_>>(), [1, 0]);
    assert!(left[0].at < ms(10) && left[1].at > ms(200));
}

#[test]
fn a_limit_shapes_what_reaches_the_air() {
    let carried = saturated(&mut limited(&[(40.0, 0)], 2e6), &[to(0)], 20)[0];
    assert!((carried / 2.0 - 1.0).abs() < 0.01, "{carried}");
    let both = saturated(&mut limited(&[(40.0, 0), (40.0, 0)], 2e6), &[to(0), to(1)], 20);
    assert!((both.iter().sum::<f64>() / 2.0 - 1.0).abs() < 0.01, "{both:?}");
    // A single packet is not delayed by it.
    let mut link = limited(&[(40.0, 0)], 2e6);
    assert_eq!(link.send(ms(5), to(0), PacketId(0), 1500), Ok(()));
    assert!(link.poll(ms(8)).is_some());
}
