//! Wires: links that the kernel shapes, for rates at which the emulator would
//! take a core.
//!
//! ```text
//!  vehicle namespace      middle namespace (one a wire)     server namespace
//!   lte ── veth pair ── vehicle ─ forwarded ─ server ── veth pair ── lte
//!                     TBF ◀ down             TBF ▶ up
//! ```
//!
//! The veth pairs keep their offloads: what is longer than a burst TBF cuts by
//! itself. There is no ARP: both ends of a pair have the same address.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, Stats64};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use rtnetlink::{LinkUnspec, LinkVeth};

use super::{Namespace, Route, Wiring, quieten};
use crate::error::{Error, Result};
use crate::netlink::{Channel, request};

/// Names of the interfaces in the middle namespace, for what lies behind them.
const ENDS: [&str; 2] = ["vehicle", "server"];
/// Ethernet address of every interface.
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0x77, 0x01];
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u64 = 14;
/// Packets that a device without a queue of its own is told to hold.
const QUEUE_PACKETS: u32 = 1000;
/// How often a bucket is looked at by the slowest kernels (CONFIG_HZ), a second.
const TICKS: f64 = 250.0;
/// Least burst, in bytes: ten packets.
const LEAST_BURST_BYTES: f64 = 15_000.0;

/// How a wire is shaped, alike both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WirePlan {
    /// Rate in bit/s of Ethernet frames and what may wait, in ns at that rate;
    /// none: it is not shaped.
    pub shape: Option<Shape>,
}

/// A token bucket's rate and queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Rate of Ethernet frames, in bit/s.
    pub bit_s: f64,
    /// What may wait, in ms at that rate.
    pub queue_ms: f64,
}

/// The middle of a wire. It goes when this is dropped.
#[derive(Debug)]
pub struct Wire {
    /// Name of the path.
    pub name: String,
    middle: Namespace,
    is_shaped: bool,
}

/// What one direction of a wire carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCount {
    /// Bytes of IP that went into it; a packet that found its queue full counts
    /// as the others on average.
    pub sent_bytes: u64,
    /// Bytes of IP that came out of it. Of a wire that is not shaped without
    /// the headers of what is cut into packets only later.
    pub delivered_bytes: u64,
    /// Packets that found its queue full.
    pub dropped_packets: u64,
}

impl WireCount {
    fn new(delivered_bytes: u64, delivered_packets: u64, dropped_packets: u64) -> WireCount {
        let dropped_bytes = delivered_bytes.saturating_mul(dropped_packets) / delivered_packets.max(1);
        WireCount { sent_bytes: delivered_bytes + dropped_bytes, delivered_bytes, dropped_packets }
    }
}

impl Wire {
    /// Makes a wire: an interface `name` in either namespace, up and without an
    /// address, and the way between them.
    ///
    /// # Errors
    /// What the kernel refused; what was made is gone again.
    pub fn new(
        name: &str,
        plan: WirePlan,
        mtu: u32,
        [vehicle, server]: [&Namespace; 2],
        addresses: [Ipv4Addr; 2],
    ) -> Result<Wire> {
        let middle = Namespace::new()?;
        middle.enter(|| quieten(&mut Wiring::open()?))??;
        for (end, namespace) in ENDS.into_iter().zip([vehicle, server]) {
            middle.enter(|| Links::open()?.make_pair(end, name, namespace))??;
            namespace.enter(|| Wiring::open()?.bring_up(name, mtu, QUEUE_PACKETS))??;
        }
        middle.enter(|| wire_middle(plan, mtu, addresses))??;
        Ok(Wire { name: name.to_owned(), middle, is_shaped: plan.shape.is_some() })
    }

    /// The router in its middle, with the interfaces `vehicle` and `server`.
    pub fn router(&self) -> &Namespace {
        &self.middle
    }

    /// What it has carried: up, down.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn counts(&self) -> Result<[WireCount; 2]> {
        let [vehicle, server] = ENDS;
        let of = |out| match self.is_shaped {
            true => Links::open()?.shaped(out),
            false => Links::open()?.unshaped(out),
        };
        self.middle.enter(|| Ok([of(server)?, of(vehicle)?]))?
    }
}

/// Forwards between both ends and shapes what leaves.
fn wire_middle(plan: WirePlan, mtu: u32, addresses: [Ipv4Addr; 2]) -> Result<()> {
    let forward = "/proc/sys/net/ipv4/ip_forward";
    std::fs::write(forward, "1").map_err(|cause| Error::failure(format!("writing {forward}"), cause))?;
    let (mut wiring, mut links) = (Wiring::open()?, Links::open()?);
    for (end, address) in ENDS.into_iter().zip(addresses) {
        wiring.bring_up(end, mtu, QUEUE_PACKETS)?;
        let interface = wiring.index(end)?;
        wiring.add_route(Route { to: Some(address), interface, source: None, table: None, metric: 0 })?;
        if let Some(shape) = plan.shape {
            links.shape(interface, shape)?;
        }
    }
    Ok(())
}

/// What `Wiring` does not know: veth pairs and queueing disciplines.
struct Links {
    channel: Channel,
}

impl Links {
    fn open() -> Result<Links> {
        let opened = Channel::open(NETLINK_ROUTE);
        opened.map(|channel| Links { channel }).map_err(|cause| Error::failure("opening a netlink socket", cause))
    }

    /// Makes a veth pair: `near` here, `far` in another namespace.
    fn make_pair(&mut self, near: &str, far: &str, namespace: &Namespace) -> Result<()> {
        let far_end = LinkUnspec::new_with_name(far)
            .address(ADDRESS.to_vec())
            .arp(false)
            .setns_by_fd(namespace.as_fd().as_raw_fd())
            .build();
        let pair = LinkVeth::new(near, far).address(ADDRESS.to_vec()).arp(false);
        let pair = pair.set_info_data(InfoData::Veth(InfoVeth::Peer(far_end))).build();
        let attempt = format!("making the wire {far}");
        self.change(attempt, RouteNetlinkMessage::NewLink(pair), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Puts a token bucket before what leaves by an interface.
    fn shape(&mut self, interface: u32, shape: Shape) -> Result<()> {
        let mut message = TcMessage::with_index(interface as i32);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![TcAttribute::Kind("tbf".into()), TcAttribute::Options(bucket(shape))];
        let attempt = "shaping a wire (the kernel needs CONFIG_NET_SCH_TBF)".to_owned();
        self.change(attempt, RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What left by an interface with a token bucket.
    fn shaped(&mut self, interface: &str) -> Result<WireCount> {
        let index = Wiring::open()?.index(interface)? as i32;
        let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
        let mut count = WireCount::default();
        let asked = self.channel.call(
            |sequence| request(question, NLM_F_DUMP, sequence),
            |reply| {
                let read = NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply.bytes).map(|read| read.payload);
                if let Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(message))) = read
                    && message.header.index == index
                    && message.header.parent == TcHandle::ROOT
                {
                    count = left(&message);
                }
                Ok(())
            },
        );
        asked.map_err(|cause| Error::failure(format!("asking what the wire's end {interface} carried"), cause))?;
        Ok(count)
    }

    /// What left by an interface without one.
    fn unshaped(&mut self, interface: &str) -> Result<WireCount> {
        let link = Wiring::open()?.interface(interface)?;
        let stats = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(*stats),
            _ => None,
        });
        let of = |stats: Stats64| {
            WireCount::new(stats.tx_bytes.saturating_sub(ETHERNET_BYTES * stats.tx_packets), stats.tx_packets, 0)
        };
        Ok(stats.map_or(WireCount::default(), of))
    }

    fn change(&mut self, attempt: String, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.channel
            .call(|sequence| request(message, NLM_F_ACK | flags, sequence), |_| Ok(()))
            .map_err(|cause| Error::failure(attempt, cause))
    }
}

fn left(message: &TcMessage) -> WireCount {
    let stats = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    });
    let (mut bytes, mut packets, mut drops) = (0, 0, 0);
    for stat in stats.into_iter().flatten() {
        match stat {
            TcStats2::Basic(basic) => (bytes, packets) = (basic.bytes, u64::from(basic.packets)),
            TcStats2::Queue(queue) => drops = u64::from(queue.drops),
            _ => {}
        }
    }
    WireCount::new(bytes.saturating_sub(ETHERNET_BYTES * packets), packets, drops)
}

/// Options of `struct tc_tbf_qopt` and what goes beyond 32 bits
/// (`include/uapi/linux/pkt_sched.h`). With the burst in bytes the kernel needs
/// neither its time nor a table of rates.
fn bucket(shape: Shape) -> Vec<TcOption> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    /// `TC_LINKLAYER_ETHERNET`: no table.
    const ETHERNET: u8 = 1;
    let bytes_s = shape.bit_s / 8.0;
    let burst = (bytes_s / TICKS).max(LEAST_BURST_BYTES) as u32;
    let limit = (bytes_s * shape.queue_ms / 1000.0) as u32 + burst;
    let mut parms = Vec::with_capacity(36);
    // `rate`: cell_log, linklayer, overhead, cell_align, mpu, rate.
    parms.extend([0, ETHERNET, 0, 0, 0, 0, 0, 0]);
    parms.extend((bytes_s.min(f64::from(u32::MAX)) as u32).to_ne_bytes());
    // `peakrate`: none.
    parms.extend([0; 12]);
    parms.extend(limit.to_ne_bytes());
    // `buffer` and `mtu`, in time.
    parms.extend([0; 8]);
    let option = |kind, value| TcOption::Other(DefaultNla::new(kind, value));
    vec![
        option(PARMS, parms),
        option(RATE64, (bytes_s as u64).to_ne_bytes().to_vec()),
        option(BURST, burst.to_ne_bytes().to_vec()),
    ]
}
