//! Values of the scenario file with a narrower range than their TOML type. The
//! TOML reader adds the line of the value to these errors. The text after `; ` in
//! a message is the remedy.

use std::fmt;

use crosslane_core::link::ieee80211p::PhyRate;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::radio::fading::Fading;

/// Maximum distance of an RSU or an attacker from the map's origin along an axis, in m: its CAM
/// has the position in degrees.
pub(super) const MAX_UNIT_M: f64 = 1e6;

/// An integer as the default of a float key.
pub(super) fn whole<const VALUE: i32>() -> f64 {
    f64::from(VALUE)
}

/// A number from `LOW` to `HIGH`, for a key that may be absent or not.
pub(super) fn number<'de, D, T, const LOW: i32, const HIGH: i32>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<f64>,
{
    within(f64::deserialize(from)?, LOW, HIGH).map(T::from)
}

/// A number above 0, up to `HIGH`, for a key that may be absent or not.
pub(super) fn period<'de, D, T, const HIGH: i32>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<f64>,
{
    let value = f64::deserialize(from)?;
    if value > 0.0 && value <= f64::from(HIGH) {
        return Ok(value.into());
    }
    Err(D::Error::custom(format!("{value} is not above 0 and up to {HIGH}; choose a number in this range")))
}

/// Two finite numbers, the smaller first.
pub(super) fn ordered<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    let [min, max] = <[f64; 2]>::deserialize(from)?;
    if min.is_finite() && max.is_finite() && min <= max {
        return Ok([min, max]);
    }
    Err(D::Error::custom(format!("[{min}, {max}] is no range; give the minimum and the maximum, in m")))
}

/// A position that a CAM can state: within 1000 km of the origin along each axis, in m.
pub(super) fn near<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    let [x, y] = <[f64; 2]>::deserialize(from)?;
    if [x, y].iter().all(|axis_m| axis_m.abs() <= MAX_UNIT_M) {
        return Ok([x, y]);
    }
    let km = MAX_UNIT_M / 1000.0;
    Err(D::Error::custom(format!("[{x}, {y}] is not within {km} km of the origin; give x and y in m")))
}

/// A whole number from `LOW` to `HIGH`.
pub(super) fn integer<'de, D: Deserializer<'de>, const LOW: i32, const HIGH: i32>(from: D) -> Result<u32, D::Error> {
    let value = u32::deserialize(from)?;
    within::<D::Error>(value.into(), LOW, HIGH).map(|_| value)
}

/// The value, if it is from `low` to `high`.
pub(super) fn within<E: Error>(value: f64, low: i32, high: i32) -> Result<f64, E> {
    if (f64::from(low)..=f64::from(high)).contains(&value) {
        return Ok(value);
    }
    Err(E::custom(format!("{value} is outside {low} to {high}; choose a number in this range")))
}

/// A PHY rate of 802.11p, in Mbit/s.
pub(super) fn phy_rate<'de, D: Deserializer<'de>>(from: D) -> Result<PhyRate, D::Error> {
    let mbit_s = f64::deserialize(from)?;
    PhyRate::from_mbit_s(mbit_s).ok_or_else(|| {
        D::Error::custom(format!("802.11p has no rate of {mbit_s} Mbit/s; choose 3, 4.5, 6, 9, 12, 18, 24 or 27"))
    })
}

/// A station id from 1.
pub(super) fn station<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom("0 is no station id; choose one from 1")),
        id => Ok(id),
    }
}

/// Intervals `[[from, to], …]`, in s: not empty, ordered and disjoint.
pub(super) fn spans<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<[f64; 2]>, D::Error> {
    let spans = Vec::<[f64; 2]>::deserialize(from)?;
    let mut earliest = 0.0;
    for &[begin, end] in &spans {
        if !(begin >= earliest && begin < end) {
            return Err(D::Error::custom(format!(
                "[{begin}, {end}] does not begin at {earliest} or later and end after it begins; \
                give times in s, in order"
            )));
        }
        earliest = end;
    }
    Ok(spans)
}

impl<'de> Deserialize<'de> for Fading {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fading, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Fading;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`none`, `nakagami`, `rayleigh` or a number m")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Fading, E> {
                match word {
                    "none" => Ok(Fading::None),
                    "nakagami" => Ok(Fading::Nakagami),
                    "rayleigh" => Ok(Fading::M(1.0)),
                    _ => Err(E::unknown_variant(word, &["none", "nakagami", "rayleigh"])),
                }
            }

            fn visit_i64<E: Error>(self, m: i64) -> Result<Fading, E> {
                self.visit_f64(m as f64)
            }

            fn visit_f64<E: Error>(self, m: f64) -> Result<Fading, E> {
                if (0.3..=100.0).contains(&m) {
                    return Ok(Fading::M(m));
                }
                Err(E::custom(format!("m = {m} is outside 0.3 to 100; choose a number in this range")))
            }
        }
        from.deserialize_any(Words)
    }
}
