//! A vehicle and a server in separate namespaces, connected by two or three paths: veth
//! pairs, or routers of this test on TUN devices.
//!
//! ```text
//!  vehicle                                     server
//!   p0 10.1.0.2 ── veth pair ─────────── p0 10.1.0.1    10.255.0.1 on lo
//!   p0 10.1.0.2 ── TUN ═ router ═ TUN ── net
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crosslane::netlink::Wiring;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Namespace;
use crosslane::tun::Tun;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoData, InfoVeth};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::os::fd::{AsFd, AsRawFd};

use super::hardships::Step;
use super::plan::{Plan, Topology};
use super::router::Routers;

/// First of the vehicle's routing tables, one for each path.
const FIRST_TABLE: u32 = 100;
const MTU: u32 = 1500;
const QUEUE_PACKETS: u32 = 1000;
/// Host part of a path's first address on the vehicle.
const FIRST_HOST: u8 = 2;

/// Both namespaces and the paths between them.
pub struct World {
    /// Namespace of the vehicle.
    pub vehicle: Namespace,
    /// Namespace of the server.
    pub server: Namespace,
    routers: Option<Routers>,
    paths: Vec<Path>,
    ipv6: bool,
    is_direct: bool,
    backup: bool,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    host: u8,
    up: bool,
    addressed: bool,
    routed: bool,
}

impl World {
    /// Builds the topology of the plan. With `kernel` the in-kernel path manager manages the
    /// connections of the vehicle. In both cases there is an in-kernel endpoint for each
    /// path, as NetworkManager adds them.
    pub fn build(plan: &Plan, kernel: bool) -> World {
        let (vehicle, server) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        for namespace in [&vehicle, &server] {
            namespace.enter(|| Wiring::open().unwrap().bring_up("lo", 65536, 1000).unwrap()).unwrap();
            for conf in ["all", "default"] {
                namespace.set_sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "0").unwrap();
            }
        }
        let is_direct = plan.topology == Topology::Direct;
        let number = plan.paths.len();
        let routers = if is_direct {
            connect_directly(&vehicle, &server, number, plan.ipv6);
            None
        } else {
            Some(connect_by_routers(&vehicle, &server, plan))
        };
        let limits = if plan.default_limits { [2, 0] } else { [8, 8] };
        server.enter(|| prepare_manager(PathManager::Kernel, limits)).unwrap();
        let manager = if kernel { PathManager::Kernel } else { PathManager::UserSpace };
        vehicle.enter(|| prepare_manager(manager, [8, 8])).unwrap();
        let path = Path { host: FIRST_HOST, up: true, addressed: true, routed: true };
        let mut world = World {
            vehicle,
            server,
            routers,
            paths: vec![path; number],
            ipv6: plan.ipv6,
            is_direct,
            backup: plan.backup,
        };
        (0..number).for_each(|place| world.wire(place));
        world
    }

    /// Address of the server.
    pub fn server_address(&self) -> IpAddr {
        server_address(self.ipv6)
    }

    /// Carries out a step, except those for the agent.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Link { path, up } => {
                self.set_link(&self.vehicle, path, up);
                self.paths[path].up = up;
                if up {
                    self.wire(path);
                } else if self.ipv6 {
                    // The kernel removes IPv6 addresses from an interface that goes down.
                    self.unannounce(path);
                }
            }
            Step::Address { path, there: false } => self.remove_address(path),
            Step::Address { path, there: true } => {
                self.paths[path].host += 1;
                self.paths[path].addressed = true;
                self.wire(path);
            }
            Step::Routes { path, there } => {
                self.paths[path].routed = there;
                if there { self.wire(path) } else { self.drop_routes(path) }
            }
            Step::FarLink { path, up } => {
                self.set_link(&self.server, path, up);
                if up {
                    self.server.enter(|| wire_server_side(path, self.ipv6)).unwrap();
                }
            }
            Step::Router { path, behaviour } => {
                self.routers.iter().for_each(|routers| routers.behave(path, behaviour));
            }
            Step::Forget { path } => self.routers.iter().for_each(|routers| routers.forget(path)),
            Step::Manager { kernel } => {
                let manager = if kernel { PathManager::Kernel } else { PathManager::UserSpace };
                self.vehicle.enter(|| select_path_manager(manager).unwrap()).unwrap();
            }
            Step::EndAgent { .. } | Step::StartAgent => {}
        }
    }

    fn set_link(&self, namespace: &Namespace, path: usize, up: bool) {
        namespace.enter(|| Wiring::open().unwrap().set_up(&name(path), up).unwrap()).unwrap();
    }

    /// Adds the address, rule and routes of a path that should exist now.
    fn wire(&mut self, place: usize) {
        let path = self.paths[place];
        if !path.up || !path.addressed {
            return;
        }
        let (address, gateway) = (self.address(place), self.is_direct.then(|| gateway(place, self.ipv6)));
        in_namespace(&self.vehicle, async |handle| {
            let index = Wiring::open().unwrap().index(&name(place)).unwrap();
            let length = match (gateway.is_some(), self.ipv6) {
                (false, false) => 32,
                (false, true) => 128,
                (true, false) => 24,
                (true, true) => 64,
            };
            // Exists already if only the link was down.
            drop(Wiring::open().unwrap().add_address(index, address, length));
            drop(handle.rule().del(rule(address, place)).execute().await);
            add_rule(handle, rule(address, place)).await;
            if path.routed {
                for table in [None, Some(table_of(place))] {
                    add_default_route(handle, index, address, gateway, table, place).await;
                }
            }
        });
        self.announce(place);
    }

    fn remove_address(&mut self, place: usize) {
        let address = self.address(place);
        self.unannounce(place);
        self.paths[place].addressed = false;
        in_namespace(&self.vehicle, async |handle| {
            let index = Wiring::open().unwrap().index(&name(place)).unwrap();
            let length = match (self.is_direct, self.ipv6) {
                (false, false) => 32,
                (false, true) => 128,
                (true, false) => 24,
                (true, true) => 64,
            };
            let message = match address {
                IpAddr::V4(v4) => AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(v4, length).build(),
                IpAddr::V6(v6) => AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(v6, length).build(),
            };
            // Already removed if an IPv6 link went down.
            drop(handle.address().del(message).execute().await);
            drop(handle.rule().del(rule(address, place)).execute().await);
        });
    }

    fn drop_routes(&self, place: usize) {
        let (address, gateway) = (self.address(place), self.is_direct.then(|| gateway(place, self.ipv6)));
        in_namespace(&self.vehicle, async |handle| {
            let index = Wiring::open().unwrap().index(&name(place)).unwrap();
            for table in [None, Some(table_of(place))] {
                let route = default_route(index, address, gateway, table, place);
                drop(handle.route().del(route).execute().await);
            }
        });
    }

    fn address(&self, place: usize) -> IpAddr {
        vehicle_address(place, self.paths[place].host, self.ipv6)
    }

    /// Adds an in-kernel endpoint for the address, as NetworkManager does.
    fn announce(&self, place: usize) {
        let endpoint = Endpoint { backup: self.backup && place > 0, ..Endpoint::subflow(self.address(place)) };
        // Exists already if only the link was down.
        self.vehicle.enter(|| drop(EndpointSocket::open().unwrap().add(&endpoint))).unwrap();
    }

    fn unannounce(&self, place: usize) {
        let address = self.address(place);
        let remove = || {
            let mut socket = EndpointSocket::open().unwrap();
            let of_address = |endpoint: &Endpoint| endpoint.address == address;
            for endpoint in socket.list().unwrap().into_iter().filter(of_address) {
                endpoint.id.iter().for_each(|id| drop(socket.remove(*id)));
            }
        };
        self.vehicle.enter(remove).unwrap();
    }
}

/// Name of a path and of its interface.
pub fn name(place: usize) -> String {
    format!("p{place}")
}

/// Address on which the server listens.
pub fn server_address(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::new(0xfd00, 255, 0, 0, 0, 0, 0, 1).into() } else { Ipv4Addr::new(10, 255, 0, 1).into() }
}

fn vehicle_address(place: usize, host: u8, ipv6: bool) -> IpAddr {
    match ipv6 {
        false => Ipv4Addr::new(10, place as u8 + 1, 0, host).into(),
        true => Ipv6Addr::new(0xfd00, place as u16 + 1, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

fn gateway(place: usize, ipv6: bool) -> IpAddr {
    vehicle_address(place, 1, ipv6)
}

fn table_of(place: usize) -> u32 {
    FIRST_TABLE + place as u32
}

fn prepare_manager(manager: PathManager, [subflows, add_addr_accepted]: [u32; 2]) {
    select_path_manager(manager).unwrap();
    EndpointSocket::open().unwrap().set_limits(Limits { subflows, add_addr_accepted }).unwrap();
}

fn connect_directly(vehicle: &Namespace, server: &Namespace, number: usize, ipv6: bool) {
    for place in 0..number {
        in_namespace(vehicle, async |handle| {
            let peer = LinkUnspec::new_with_name(&name(place)).setns_by_fd(server.as_fd().as_raw_fd()).build();
            let pair = LinkVeth::new(&name(place), &name(place)).set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
            handle.link().add(pair.build()).execute().await.unwrap();
        });
        for namespace in [vehicle, server] {
            namespace.enter(|| Wiring::open().unwrap().bring_up(&name(place), MTU, QUEUE_PACKETS).unwrap()).unwrap();
        }
        server.enter(|| wire_server_side(place, ipv6)).unwrap();
    }
    let add_address = || {
        let mut wiring = Wiring::open().unwrap();
        let loopback = wiring.index("lo").unwrap();
        wiring.add_address(loopback, server_address(ipv6), if ipv6 { 128 } else { 32 }).unwrap();
    };
    server.enter(add_address).unwrap();
}

fn wire_server_side(place: usize, ipv6: bool) {
    let mut wiring = Wiring::open().unwrap();
    let index = wiring.index(&name(place)).unwrap();
    // Exists already if the link was down.
    drop(wiring.add_address(index, gateway(place, ipv6), if ipv6 { 64 } else { 24 }));
}

fn connect_by_routers(vehicle: &Namespace, server: &Namespace, plan: &Plan) -> Routers {
    let device = |name: &str| {
        let tun = Tun::open(name).unwrap();
        Wiring::open().unwrap().bring_up(name, MTU, QUEUE_PACKETS).unwrap();
        tun
    };
    let devices = || (0..plan.paths.len()).map(|place| device(&name(place))).collect::<Vec<_>>();
    let vehicle = vehicle.enter(devices).unwrap();
    let server_device = server.enter(|| device("net")).unwrap();
    in_namespace(server, async |handle| {
        let mut wiring = Wiring::open().unwrap();
        let (loopback, index) = (wiring.index("lo").unwrap(), wiring.index("net").unwrap());
        let own = server_address(plan.ipv6);
        wiring.add_address(loopback, own, if plan.ipv6 { 128 } else { 32 }).unwrap();
        add_default_route(handle, index, own, None, None, 0).await;
    });
    Routers::start(vehicle, server_device, &plan.paths)
}

fn default_route(
    index: u32,
    source: IpAddr,
    gateway: Option<IpAddr>,
    table: Option<u32>,
    place: usize,
) -> netlink_packet_route::route::RouteMessage {
    let metric = if table.is_some() { 1 } else { 100 + place as u32 };
    let table = table.unwrap_or(254);
    match source {
        IpAddr::V4(source) => {
            let route = RouteMessageBuilder::<Ipv4Addr>::new().output_interface(index).priority(metric);
            let route = route.table_id(table).pref_source(source);
            match gateway {
                Some(IpAddr::V4(gateway)) => route.gateway(gateway).build(),
                _ => route.scope(netlink_packet_route::route::RouteScope::Link).build(),
            }
        }
        IpAddr::V6(source) => {
            let route = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(index).priority(metric);
            let route = route.table_id(table).pref_source(source);
            match gateway {
                Some(IpAddr::V6(gateway)) => route.gateway(gateway).build(),
                _ => route.build(),
            }
        }
    }
}

async fn add_default_route(
    handle: &Handle,
    index: u32,
    source: IpAddr,
    gateway: Option<IpAddr>,
    table: Option<u32>,
    place: usize,
) {
    let route = default_route(index, source, gateway, table, place);
    handle.route().add(route).replace().execute().await.unwrap();
}

fn rule(source: IpAddr, place: usize) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.src_len = if source.is_ipv4() { 32 } else { 128 };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![RuleAttribute::Source(source), RuleAttribute::Table(table_of(place))];
    message
}

async fn add_rule(handle: &Handle, message: RuleMessage) {
    let mut request = handle.rule().add();
    *request.message_mut() = message;
    request.execute().await.unwrap();
}

fn in_namespace(namespace: &Namespace, work: impl AsyncFnOnce(&Handle) + Send) {
    let inside = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            work(&handle).await;
        });
    };
    namespace.enter(inside).unwrap();
}
