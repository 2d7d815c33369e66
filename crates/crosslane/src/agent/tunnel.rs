//! The tunnel of an agent: it carries what the engine wants carried.

use std::net::IpAddr;

use crosslane_core::agent::Agent;
use crosslane_core::allocate::PathState;
use crosslane_core::path::{PathId, Sample};

use super::config::Config;
use crate::clock::Clock;
use crate::error::Result;
use crate::tunnel::end::Change;
use crate::tunnel::run::Carrier;

/// A running tunnel and the paths it has.
pub struct Carried {
    carrier: Carrier,
    is_vehicle: bool,
    paths: Vec<Path>,
}

struct Path {
    interface: String,
    address: Option<IpAddr>,
}

impl Carried {
    /// Starts the tunnel that the configuration asks for, if it does.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub fn start(config: &Config, clock: Clock) -> Result<Option<Carried>> {
        let Some(tunnel) = &config.tunnel else { return Ok(None) };
        let carrier = Carrier::start(tunnel.get_ref(), config.ranks(), clock)?;
        let paths =
            config.paths.iter().map(|path| Path { interface: path.get_ref().interface().into(), address: None });
        Ok(Some(Carried { carrier, is_vehicle: tunnel.get_ref().gateway.is_some(), paths: paths.collect() }))
    }

    /// A path has this address now, or none.
    ///
    /// # Errors
    /// The path cannot be used; the others go on.
    pub fn set_path(&mut self, path: PathId, address: Option<IpAddr>) -> Result<()> {
        let Some(known) = self.paths.get_mut(usize::from(path.0)).filter(|_| self.is_vehicle) else { return Ok(()) };
        if known.address == address {
            return Ok(());
        }
        known.address = address;
        self.carrier.set_path(path, address, &known.interface)
    }

    /// Tells the tunnel what is wanted of each path.
    pub fn want(&self, engine: &Agent) {
        let states: Vec<PathState> = engine.paths().map(|(_, _, state)| state).collect();
        self.carrier.want(&states);
    }

    /// What was seen of each path; a gateway's is its vehicles' affair.
    pub fn samples(&self) -> Vec<Sample> {
        if self.is_vehicle { self.carrier.samples() } else { Vec::new() }
    }

    /// What changed since the last time.
    pub fn changes(&self) -> Vec<Change> {
        if std::env::var_os("TDEBUG").is_some() {
            let now = crate::clock::unix_s();
            for (_, path, v) in self.carrier.end().views() {
                eprintln!(
                    "DBG {now:.3} p{} {} rate {:.1} base {:.2} srtt {:.1} loss {:.2} uw {}k win {}k lost {} dlv {}",
                    path.0,
                    v.health.name(),
                    v.rate_bit_s.unwrap_or(0.0) / 1e6,
                    v.round_trip.map_or(0.0, |d| d.as_secs_f64() * 1e3),
                    v.smoothed.as_secs_f64() * 1e3,
                    v.loss,
                    v.under_way_bytes[0] / 1000,
                    v.under_way_bytes[1] / 1000,
                    v.lost,
                    v.delivered
                );
            }
        }
        self.carrier.changes.try_iter().collect()
    }
}
