//! Links for tests of the tunnel.

use std::time::Duration;

use crosslane::clock::Clock;
use crosslane::testbed::emulator::{EmulatedLink, Emulator};
use crosslane::testbed::{PathPlan, Testbed};
use crosslane_core::link::{Bottleneck, DirectionParams, Link, Loss, QueueLimit};

/// A vehicle and a server that know IPv6, joined by `lte` and `its-g5` of 20
/// Mbit/s and 5 ms each.
pub fn two_links() -> (Testbed, Emulator) {
    let plan = |(metric, name): (usize, &str)| PathPlan { name: name.to_owned(), metric: metric as u32 };
    let plans: Vec<_> = ["lte", "its-g5"].into_iter().enumerate().map(plan).collect();
    let mut testbed = Testbed::new(&plans).unwrap();
    for namespace in [&testbed.vehicle, &testbed.server] {
        for conf in ["all", "default"] {
            namespace.set_sysctl(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "0").unwrap();
        }
    }
    let params = DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s: 20e6 },
        delay: Duration::from_millis(5),
        loss: Loss::NONE,
        queue: QueueLimit::Packets(100),
        codel: None,
    };
    let links = testbed.take_devices().into_iter().map(|devices| {
        let link = Link::new(1, &devices.name, params.clone(), params.clone());
        EmulatedLink { devices, link }
    });
    let emulator = Emulator::start(Clock::start(), links.collect(), None).unwrap();
    (testbed, emulator)
}
