//! Many vehicles in one run.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Motion, Scenario, ScenarioError, Traffic};
use crate::input::mobility::MAX_VEHICLES;

/// All vehicles of the mobility file on one map (simulator only). A vehicle is
/// present from its first point to its last.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// Maximum number of vehicles, taken in order of their number (1 to
    /// [`MAX_VEHICLES`]); none: all of the file.
    pub vehicles: Option<usize>,
    /// Minimum and maximum rate of a vehicle's messages, in Mbit/s (0.001 to
    /// 100), drawn uniformly; none: as in `[traffic]`.
    #[serde(default, deserialize_with = "rate_mbit_s")]
    pub rate_mbit_s: Option<[f64; 2]>,
}

impl Fleet {
    /// The traffic of a vehicle that is present from `from_s` to `to_s`; `place`
    /// (0 to 1) selects its rate in the range. The traffic ends a second before
    /// the vehicle departs, so that data in flight can arrive.
    pub fn traffic(&self, common: &Traffic, [from_s, to_s]: [f64; 2], place: f64) -> Traffic {
        let mut traffic = common.clone();
        traffic.start_s = common.start_s.max(from_s);
        traffic.stop_s = common.stop_s.min(to_s - 1.0).max(traffic.start_s);
        let rated = self.rate_mbit_s.and_then(|[min, max]| traffic.kind.with_rate(min + place * (max - min)));
        if let Some(rated) = rated {
            traffic.kind = rated;
        }
        traffic
    }
}

impl Scenario {
    pub(super) fn check_fleet(&self) -> Result<(), ScenarioError> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        let (key, what, remedy) = if !matches!(self.vehicle.motion, Motion::Mobility(_)) {
            ("fleet", "a fleet needs a mobility file".into(), "give `vehicle.mobility`, with a column `vehicle`")
        } else if self.vehicle.number.is_some() {
            ("vehicle.vehicle", "a fleet uses every vehicle of the file".into(), "leave `vehicle` or `[fleet]` out")
        } else if fleet.vehicles.is_some_and(|count| !(1..=MAX_VEHICLES).contains(&count)) {
            ("fleet.vehicles", format!("a fleet has 1 to {MAX_VEHICLES} vehicles"), "choose a number in this range")
        } else if fleet.rate_mbit_s.is_some() && self.traffic.kind.with_rate(1.0).is_none() {
            ("fleet.rate_mbit_s", "only messages have a rate".into(), "write `kind = \"messages\"`, or leave it out")
        } else {
            return Ok(());
        };
        Err(self.lines.error(key, what, remedy))
    }
}

fn rate_mbit_s<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    let [min, max] = <[f64; 2]>::deserialize(from)?;
    if 0.001 <= min && min <= max && max <= 100.0 {
        return Ok(Some([min, max]));
    }
    Err(D::Error::custom(format!("[{min}, {max}] is no range within 0.001 to 100; give the minimum and the maximum")))
}
