//! The roadside units of a drive that the vehicle reaches through tunnels over one radio
//! interface: their ends of the tunnels, and the vehicle's if it has no agent.

use std::net::Ipv4Addr;
use std::path::Path;

use crosslane_core::path::PathId;
use crosslane_core::tunnel::wire::overhead::VXLAN_BYTES;
use crosslane_sim::scenario::{RadioTunnel, RoadsideUnit, Scenario};
use ipnet::Ipv4Net;
use toml::{Spanned, Table, Value};

use super::agent_process::AgentProcess;
use super::tunnel::{CLIENT, Keys, PORT};
use crate::agent::config;
use crate::agent::unit_tunnel::{UnitTunnel, find_radio};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::observe::vanetza;
use crate::run_folder::agent_file::Reader;
use crate::testbed::{self, DEVICE_QUEUE_PACKETS, Testbed, Wiring, radio_address, unit_address};

/// Prefix length of the network inside each tunnel.
const PREFIX: u8 = 24;

/// The units' ends of the tunnels, and those of a vehicle without an agent.
pub struct RoadsideTunnels {
    section: Table,
    ends: Vec<AgentProcess>,
    opened: Vec<UnitTunnel>,
    /// Kept until the programs that use them have ended.
    _keys: Option<Keys>,
}

/// A unit, and what the testbed gives it.
struct Unit<'a> {
    unit: &'a RoadsideUnit,
    /// On the air.
    outer: Ipv4Addr,
    /// In the tunnel: its address and the vehicle's.
    inner: [Ipv4Addr; 2],
}

impl RoadsideTunnels {
    /// Starts the units' ends, if the scenario has tunnels to units; files are written into `folder`.
    pub fn start(scenario: &Scenario, folder: &Path, testbed: &Testbed) -> Result<Option<RoadsideTunnels>> {
        let Some((radio, kind)) = scenario.tunnelled_radio() else { return Ok(None) };
        let units: Vec<Unit> = scenario.units_of(radio).filter_map(|unit| Unit::new(scenario, unit)).collect();
        let endpoints: Vec<&str> = [CLIENT].into_iter().chain(units.iter().map(|unit| unit.name())).collect();
        let keys = (kind == RadioTunnel::Crosslane).then(|| Keys::make(folder, &endpoints)).transpose()?;
        let (mut ends, mtu) = (Vec::new(), scenario.tunnel.mtu);
        for unit in &units {
            let namespace = testbed.unit(unit.name()).ok_or_else(|| {
                Error::failure("starting the roadside units", format!("{} has no namespace", unit.name()))
            })?;
            match &keys {
                Some(keys) => {
                    let config = Table::from_iter([("tunnel".to_string(), unit.end(keys, mtu).into())]);
                    let start = || AgentProcess::start(&format!("unit-{}", unit.name()), config, folder);
                    ends.push(namespace.enter(start)??);
                }
                None => namespace.enter(|| unit.join_by_vxlan(&radio.name, mtu))??,
            }
        }
        let slots = radio.slots.map_or(units.len(), usize::from);
        let mut section = Table::from_iter([
            ("interface".to_string(), Value::from(radio.name.as_str())),
            ("tunnel".to_string(), kind.name().into()),
            ("slots".to_string(), (slots as i64).into()),
            ("unit".to_string(), units.iter().map(|unit| unit.entry(keys.as_ref())).collect::<Vec<_>>().into()),
        ]);
        section.extend(keys.iter().map(|keys| ("key".to_string(), keys.file(CLIENT).display().to_string().into())));
        Ok(Some(RoadsideTunnels { section, ends, opened: Vec::new(), _keys: keys }))
    }

    /// `[roadside]` of the vehicle's agent.
    pub fn section(&self) -> Table {
        self.section.clone()
    }

    /// Opens the vehicle's end of every tunnel, as its agent would; that of the first subflow
    /// precedes the others.
    pub fn open_all(&mut self, scenario: &Scenario, testbed: &Testbed) -> Result<()> {
        let attempt = "opening the tunnels to the roadside units";
        let observe = Table::from_iter([("vanetza".to_string(), format!("127.0.0.1:{}", vanetza::PORT).into())]);
        let strategy = Table::from_iter([("name".to_string(), "threshold".into())]);
        let table = [("observe", observe), ("strategy", strategy), ("roadside", self.section())];
        let config = config::from_table(
            attempt,
            &table.map(|(key, table)| (key.to_string(), table.into())).into_iter().collect(),
        )?;
        let Some(roadside) = config.roadside.as_ref().map(Spanned::get_ref) else { return Ok(()) };
        let first = scenario.paths().into_iter().find(|path| path.id == scenario.first_path()).map(|path| path.name);
        let mut units: Vec<_> = roadside.units.iter().map(Spanned::get_ref).collect();
        units.sort_by_key(|unit| Some(unit.name.as_str()) != first);
        let open = || -> Result<Vec<UnitTunnel>> {
            let (radio, _) = find_radio(roadside);
            let radio = radio.ok_or_else(|| Error::failure(attempt, "the radio has no address"))?;
            let clock = Clock::start();
            let paths = (0..).map(PathId);
            units.iter().zip(paths).map(|(unit, path)| UnitTunnel::open(roadside, unit, path, radio, clock)).collect()
        };
        self.opened = testbed.vehicle.enter(open)??;
        Ok(())
    }

    pub fn are_running(&mut self) -> bool {
        self.ends.iter_mut().all(AgentProcess::is_running)
    }

    /// Ends the units' programs.
    pub fn finish(self, reader: Reader) -> Result<()> {
        self.ends.into_iter().try_for_each(|end| end.finish(Reader { source: "unit", ..reader }).map(drop))
    }
}

impl<'a> Unit<'a> {
    fn new(scenario: &Scenario, unit: &'a RoadsideUnit) -> Option<Unit<'a>> {
        let place = usize::from(scenario.path_id(&unit.name)?.0);
        let vehicle = testbed::vehicle_address(place);
        let net = Ipv4Net::new(vehicle, PREFIX).ok()?;
        Some(Unit { unit, outer: unit_address(place), inner: [net.hosts().next()?, vehicle] })
    }

    fn name(&self) -> &'a str {
        &self.unit.name
    }

    /// `[[roadside.unit]]` of the vehicle's agent.
    fn entry(&self, keys: Option<&Keys>) -> Table {
        let mut entry = Table::from_iter([
            ("station".to_string(), Value::from(i64::from(self.unit.station_id))),
            ("name".to_string(), self.name().into()),
            ("address".to_string(), self.outer.to_string().into()),
            ("inner".to_string(), format!("{}/{PREFIX}", self.inner[1]).into()),
        ]);
        entry.extend(keys.map(|keys| ("key".to_string(), keys.public(self.name()).into())));
        entry
    }

    /// `[tunnel]` of the unit's agent.
    fn end(&self, keys: &Keys, mtu: u32) -> Table {
        let [own, vehicle] = self.inner;
        let peer = Table::from_iter([
            ("name".to_string(), Value::from(CLIENT)),
            ("key".to_string(), keys.public(CLIENT).into()),
            ("address".to_string(), vec![Value::from(format!("{vehicle}/32"))].into()),
        ]);
        Table::from_iter([
            ("interface".to_string(), Value::from(self.name())),
            ("address".to_string(), vec![Value::from(format!("{own}/{PREFIX}"))].into()),
            ("listen".to_string(), format!("{}:{PORT}", self.outer).into()),
            ("key".to_string(), keys.file(self.name()).display().to_string().into()),
            ("mtu".to_string(), i64::from(mtu).into()),
            ("vehicle".to_string(), vec![Value::from(peer)].into()),
        ])
    }

    fn join_by_vxlan(&self, radio: &str, mtu: u32) -> Result<()> {
        let mut wiring = Wiring::open()?;
        let over = wiring.index(radio)?;
        wiring.add_vxlan(self.name(), self.unit.station_id, (self.outer, radio_address()), Some(over))?;
        wiring.bring_up(self.name(), mtu - VXLAN_BYTES, DEVICE_QUEUE_PACKETS)?;
        let interface = wiring.index(self.name())?;
        wiring.add_address(interface, self.inner[0], PREFIX)
    }
}
