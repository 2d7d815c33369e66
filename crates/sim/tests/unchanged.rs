//! A shipped drive does not change: with the same seed the world has the same
//! events, and its links carry packets in the same way.

use std::collections::BTreeMap;
use std::error::Error;

use crosslane_core::link::{Bottleneck, Direction, DirectionParams, Link, PacketId, QueueLimit};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{World, WorldEvent};

/// FNV-1a over 64-bit words.
struct Digest(u64);

impl Digest {
    fn add(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: f64) {
        self.add(number.to_bits());
    }

    fn optional(&mut self, number: Option<f64>) {
        self.number(number.unwrap_or(f64::NAN));
    }

    fn params(&mut self, params: &DirectionParams) {
        match &params.bottleneck {
            Bottleneck::Rate { bit_s } => self.number(*bit_s),
            Bottleneck::Opportunities(opportunities) => self.add(opportunities.len() as u64),
            Bottleneck::Ieee80211p(channel) => {
                self.number(channel.mean_snr_db);
                self.number(channel.nakagami_m);
                self.add(u64::from(channel.tries));
            }
        }
        self.add(params.delay.as_nanos() as u64);
        self.number(params.loss.mean());
        match params.queue {
            QueueLimit::Packets(packets) => self.add(packets.into()),
            QueueLimit::Bytes(bytes) => self.add(bytes.into()),
        }
    }

    fn event(&mut self, event: &WorldEvent) {
        match event {
            WorldEvent::LinkParams { path, direction, params } => {
                self.add(u64::from(path.0) * 2 + *direction as u64);
                self.params(params);
            }
            WorldEvent::CamSent(cam) => {
                self.add(cam.at.as_nanos());
                self.add(u64::from(cam.station));
                self.add(cam.air_time.as_nanos() as u64);
                self.optional(cam.received);
            }
            WorldEvent::VehicleCam(cam) => self.add(cam.at.as_nanos()),
            WorldEvent::Vehicle(_) | WorldEvent::Handover { .. } => {}
            WorldEvent::Signal { at, path, rssi_dbm, .. } => {
                self.add(at.as_nanos() + u64::from(path.0));
                self.number(*rssi_dbm);
            }
            WorldEvent::Truth(truth) => {
                self.add(truth.at.as_nanos() + u64::from(truth.path.0));
                let [x, y] = truth.position_m;
                let numbers = [x, y, truth.speed_m_s, truth.up_mbit_s, truth.down_mbit_s, truth.delay_ms, truth.loss];
                numbers.into_iter().for_each(|number| self.number(number));
                self.optional(truth.distance_m);
                self.optional(truth.rssi_dbm);
            }
        }
    }
}

/// Digest of the world's events, and of its links' results for a packet every 2 ms.
fn digest(text: &str, seed: u64) -> Result<u64, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let mut world = World::new(&scenario, seed)?;
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    let mut links: BTreeMap<PathId, Link> = BTreeMap::new();
    let mut packet = 0;
    for at in (0..scenario.duration_s as u64 * 500).map(|step| Instant::from_millis(step * 2)) {
        while let Some(event) = world.poll(at) {
            digest.event(&event);
            match event {
                WorldEvent::LinkParams { path, direction, params } => {
                    let new = || Link::new(seed, &format!("{path:?}"), params.clone(), params.clone());
                    links.entry(path).or_insert_with(new).set(at, direction, params.clone());
                }
                WorldEvent::CamSent(cam) => {
                    links.get_mut(&cam.path).map(|link| link.occupy(at, cam.air_time));
                }
                _ => {}
            }
        }
        for link in links.values_mut() {
            packet += 1;
            digest.add(u64::from(link.send(at, Direction::Up, PacketId(packet), 1200).is_ok()));
            while let Some(exit) = link.poll(at) {
                digest.add(exit.packet.0);
                digest.add((exit.at + Duration::from_nanos(exit.tries.into())).as_nanos());
                digest.add(exit.dropped.map_or(9, |why| why as u64));
            }
        }
    }
    Ok(digest.0)
}

#[test]
fn a_shipped_drive_does_not_change() -> Result<(), Box<dyn Error>> {
    for (text, name, expected) in [
        (
            include_str!("../../../scenarios/leave-coverage.toml"),
            "leave-coverage",
            [0x926d_257d_10da_66f5, 0xf8ec_e5fa_b30d_99cb],
        ),
        (include_str!("../../../scenarios/pass-by.toml"), "pass-by", [0x5b56_76ea_fdd9_95de, 0x2425_aa64_ad4f_d899]),
        (
            include_str!("../../../scenarios/sudden-loss.toml"),
            "sudden-loss",
            [0xbc5c_48de_0fbf_916d, 0x4151_099b_df4e_e33e],
        ),
    ] {
        let found = [digest(text, 1)?, digest(text, 7)?];
        assert_eq!(found, expected, "{name}: {found:#x?}");
    }
    Ok(())
}
