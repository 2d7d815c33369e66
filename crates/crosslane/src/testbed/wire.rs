//! Wires: veth links shaped by the kernel, for rates at which the emulator would
//! need a whole core.
//!
//! ```text
//!  vehicle namespace      middle namespace (one a wire)     server namespace
//!   lte ── veth pair ── vehicle ─ forwarded ─ server ── veth pair ── lte
//!                     TBF ◀ down             TBF ▶ up
//! ```
//!
//! The veth pairs keep their offloads: TBF segments packets longer than its
//! burst. ARP is off: both interfaces of a pair have the same Ethernet address.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, Stats64};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use rtnetlink::{LinkUnspec, LinkVeth};

use super::{IpVersion, Namespace, Route, Wiring, quieten};
use crate::error::{Error, Result};
use crate::netlink::Channel;

/// Names of the interfaces in the middle namespace, after their peers.
const INTERFACES: [&str; 2] = ["vehicle", "server"];
/// Ethernet address of every interface.
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0x77, 0x01];
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u64 = 14;
/// Queue length of a veth device, in packets.
pub(super) const QUEUE_PACKETS: u32 = 1000;
/// Lowest timer frequency of a kernel (CONFIG_HZ), in Hz.
const TIMER_HZ: f64 = 250.0;
/// Minimum burst, in bytes: ten packets.
const MIN_BURST_BYTES: f64 = 15_000.0;

/// Shaping of a wire, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WirePlan {
    /// Rate and queue; `None`: not shaped.
    pub shape: Option<Shape>,
}

/// A token bucket's rate and queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Rate of Ethernet frames, in bit/s.
    pub bit_s: f64,
    /// Queue length, in ms at that rate.
    pub queue_ms: f64,
}

/// The middle namespace of a wire. It is removed on drop.
#[derive(Debug)]
pub struct Wire {
    /// Name of the path.
    pub name: String,
    middle: Namespace,
    is_shaped: bool,
}

/// Counters of one direction of a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCount {
    /// Bytes of IP that entered it; a dropped packet is counted with the mean size
    /// of the delivered packets.
    pub sent_bytes: u64,
    /// Bytes of IP that it delivered. Without shaping, the headers of packets that
    /// are segmented later are missing.
    pub delivered_bytes: u64,
    /// Packets dropped because its queue was full.
    pub dropped_packets: u64,
}

impl WireCount {
    fn new(delivered_bytes: u64, delivered_packets: u64, dropped_packets: u64) -> WireCount {
        let dropped_bytes = delivered_bytes.saturating_mul(dropped_packets) / delivered_packets.max(1);
        WireCount { sent_bytes: delivered_bytes + dropped_bytes, delivered_bytes, dropped_packets }
    }
}

impl Wire {
    /// Creates a wire: an interface `name` in both namespaces, up and without an
    /// address, and the connection between them.
    ///
    /// # Errors
    /// What the kernel rejected; everything created before is removed.
    pub fn new(
        name: &str,
        plan: WirePlan,
        mtu: u32,
        [vehicle, server]: [&Namespace; 2],
        ip: IpVersion,
        place: usize,
    ) -> Result<Wire> {
        let middle = Namespace::new()?;
        middle.enter(|| quieten(&mut Wiring::open()?, ip))??;
        for (interface, namespace) in INTERFACES.into_iter().zip([vehicle, server]) {
            middle.enter(|| Links::open()?.make_pair(interface, name, namespace))??;
            namespace.enter(|| Wiring::open()?.bring_up(name, mtu, QUEUE_PACKETS))??;
        }
        middle.enter(|| configure_router(plan, mtu, ip, place))??;
        Ok(Wire { name: name.to_owned(), middle, is_shaped: plan.shape.is_some() })
    }

    /// The router namespace, with the interfaces `vehicle` and `server`.
    pub fn router(&self) -> &Namespace {
        &self.middle
    }

    /// Its counters: up, down.
    ///
    /// # Errors
    /// The kernel does not return its counters.
    pub fn counts(&self) -> Result<[WireCount; 2]> {
        let [vehicle, server] = INTERFACES;
        let of = |out| match self.is_shaped {
            true => Links::open()?.shaped(out),
            false => Links::open()?.unshaped(out),
        };
        self.middle.enter(|| Ok([of(server)?, of(vehicle)?]))?
    }
}

/// Enables forwarding between both interfaces and shapes their output.
fn configure_router(plan: WirePlan, mtu: u32, ip: IpVersion, place: usize) -> Result<()> {
    let forward = match ip {
        IpVersion::V4 => "/proc/sys/net/ipv4/ip_forward",
        IpVersion::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
    };
    std::fs::write(forward, "1").map_err(|cause| Error::failure(format!("writing {forward}"), cause))?;
    let (mut wiring, mut links) = (Wiring::open()?, Links::open()?);
    for (interface, address) in INTERFACES.into_iter().zip([ip.vehicle(place), ip.server()]) {
        wiring.bring_up(interface, mtu, QUEUE_PACKETS)?;
        let interface = wiring.index(interface)?;
        wiring.add_route(Route { to: Some(address), interface, via: None, source: None, table: None, metric: 0 })?;
        if let Some(shape) = plan.shape {
            links.shape(interface, shape)?;
        }
    }
    Ok(())
}

/// Operations that `Wiring` lacks: veth pairs and queueing disciplines.
pub(super) struct Links {
    channel: Channel,
}

impl Links {
    pub(super) fn open() -> Result<Links> {
        let opened = Channel::open(NETLINK_ROUTE);
        opened.map(|channel| Links { channel }).map_err(|cause| Error::failure("opening a netlink socket", cause))
    }

    /// Creates a veth pair: `local` here, `peer` in another namespace.
    pub(super) fn make_pair(&mut self, local: &str, peer: &str, namespace: &Namespace) -> Result<()> {
        let peer_link = LinkUnspec::new_with_name(peer)
            .address(ADDRESS.to_vec())
            .arp(false)
            .setns_by_fd(namespace.as_fd().as_raw_fd())
            .build();
        let pair = LinkVeth::new(local, peer).address(ADDRESS.to_vec()).arp(false);
        let pair = pair.set_info_data(InfoData::Veth(InfoVeth::Peer(peer_link))).build();
        let attempt = format!("creating the wire {peer}");
        self.change(attempt, RouteNetlinkMessage::NewLink(pair), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a token bucket to an interface's output.
    fn shape(&mut self, interface: u32, shape: Shape) -> Result<()> {
        let mut message = TcMessage::with_index(interface as i32);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![TcAttribute::Kind("tbf".into()), TcAttribute::Options(bucket(shape))];
        let attempt = "shaping a wire (the kernel needs CONFIG_NET_SCH_TBF)".to_owned();
        self.change(attempt, RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Packets sent over an interface with a token bucket.
    fn shaped(&mut self, interface: &str) -> Result<WireCount> {
        let index = Wiring::open()?.index(interface)? as i32;
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
        let mut count = WireCount::default();
        let result = self.channel.call(query, NLM_F_DUMP, |reply| {
            let read = NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply.bytes).map(|read| read.payload);
            if let Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(message))) = read
                && message.header.index == index
                && message.header.parent == TcHandle::ROOT
            {
                count = count_sent(&message);
            }
            Ok(())
        });
        result.map_err(|cause| {
            Error::failure(format!("reading the counters of the wire's interface {interface}"), cause)
        })?;
        Ok(count)
    }

    /// Packets sent over an interface without a token bucket.
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
        let result = self.channel.call(message, NLM_F_ACK | flags, |_| Ok(()));
        result.map_err(|cause| Error::failure(attempt, cause))
    }
}

fn count_sent(message: &TcMessage) -> WireCount {
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

/// Options of `struct tc_tbf_qopt` and those beyond 32 bits
/// (`include/uapi/linux/pkt_sched.h`). With the burst in bytes the kernel needs
/// neither its duration nor a rate table.
fn bucket(shape: Shape) -> Vec<TcOption> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    /// `TC_LINKLAYER_ETHERNET`: no table.
    const ETHERNET: u8 = 1;
    let bytes_s = shape.bit_s / 8.0;
    let burst = (bytes_s / TIMER_HZ).max(MIN_BURST_BYTES) as u32;
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
