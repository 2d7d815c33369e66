//! Values of the scenario file that are narrower than their TOML type. Errors
//! raised here get the line of the value from the TOML reader. What follows
//! `; ` in a message is the remedy.

use std::fmt;

use crosslane_core::link::ieee80211p::PhyRate;
use crosslane_core::link::{CoDel, GilbertElliott, Loss};
use crosslane_core::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::Fading;

/// A whole number as default of a float key.
pub(super) fn whole<const VALUE: i32>() -> f64 {
    f64::from(VALUE)
}

/// A number from `LOW` to `HIGH`.
pub(super) fn number<'de, D, const LOW: i32, const HIGH: i32>(from: D) -> Result<f64, D::Error>
where
    D: Deserializer<'de>,
{
    let value = f64::deserialize(from)?;
    if (f64::from(LOW)..=f64::from(HIGH)).contains(&value) {
        return Ok(value);
    }
    Err(D::Error::custom(format!("{value} is outside {LOW} to {HIGH}; choose a number inside")))
}

/// A number above 0, up to `HIGH`.
pub(super) fn period<'de, D, const HIGH: i32>(from: D) -> Result<f64, D::Error>
where
    D: Deserializer<'de>,
{
    let value = f64::deserialize(from)?;
    if value > 0.0 && value <= f64::from(HIGH) {
        return Ok(value);
    }
    Err(D::Error::custom(format!("{value} is not above 0 and up to {HIGH}; choose a number that is")))
}

/// As [`number`], for a key that may be absent.
pub(super) fn optional_number<'de, D, const LOW: i32, const HIGH: i32>(from: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    number::<D, LOW, HIGH>(from).map(Some)
}

/// As [`period`], for a key that may be absent.
pub(super) fn optional_period<'de, D, const HIGH: i32>(from: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    period::<D, HIGH>(from).map(Some)
}

/// A range `[least, greatest]` within bounds, for a key that may be absent.
pub(super) fn optional_range<'de, D>(from: D, [low, high]: [f64; 2]) -> Result<Option<[f64; 2]>, D::Error>
where
    D: Deserializer<'de>,
{
    let [least, greatest] = <[f64; 2]>::deserialize(from)?;
    if low <= least && least <= greatest && greatest <= high {
        return Ok(Some([least, greatest]));
    }
    Err(D::Error::custom(format!(
        "[{least}, {greatest}] is no range within {low} to {high}; give the least and the greatest"
    )))
}

/// Stations in range, 0 to 1000.
pub(super) fn stations<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        stations @ 0..=1000 => Ok(stations),
        more => Err(D::Error::custom(format!("{more} is outside 0 to 1000; choose a number inside"))),
    }
}

/// CoDel's times, in ms; by default those of RFC 8289.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoDelKeys {
    #[serde(default = "whole::<5>", deserialize_with = "period::<_, 10_000>")]
    target_ms: f64,
    #[serde(default = "whole::<100>", deserialize_with = "period::<_, 60_000>")]
    interval_ms: f64,
}

/// CoDel's parameters, for a key that may be absent.
pub(super) fn codel<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CoDel>, D::Error> {
    let CoDelKeys { target_ms, interval_ms } = CoDelKeys::deserialize(from)?;
    if target_ms >= interval_ms {
        let text = format!("the target of {target_ms} ms is not below the interval of {interval_ms} ms");
        return Err(D::Error::custom(format!("{text}; choose a longer `interval_ms`")));
    }
    let millis = |ms: f64| Duration::from_nanos((ms * 1e6) as u64);
    Ok(Some(CoDel { target: millis(target_ms), interval: millis(interval_ms) }))
}

/// A channel that loses in bursts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstKeys {
    #[serde(default, deserialize_with = "number::<_, 0, 1>")]
    good: f64,
    #[serde(deserialize_with = "number::<_, 0, 1>")]
    bad: f64,
    #[serde(deserialize_with = "period::<_, 1>")]
    to_bad: f64,
    #[serde(deserialize_with = "period::<_, 1>")]
    to_good: f64,
}

/// A share of packets lost, or a table for losses in bursts.
pub(super) fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Loss, D::Error> {
    struct Shapes;
    impl<'de> Visitor<'de> for Shapes {
        type Value = Loss;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, or a table of `good`, `bad`, `to_bad` and `to_good`")
        }

        fn visit_i64<E: Error>(self, loss: i64) -> Result<Loss, E> {
            self.visit_f64(loss as f64)
        }

        fn visit_f64<E: Error>(self, loss: f64) -> Result<Loss, E> {
            if (0.0..=1.0).contains(&loss) {
                return Ok(Loss::Independent(loss));
            }
            Err(E::custom(format!("{loss} is outside 0 to 1; choose a number inside")))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
            let BurstKeys { good, bad, to_bad, to_good } = BurstKeys::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Loss::GilbertElliott(GilbertElliott { good, bad, to_bad, to_good }))
        }
    }
    from.deserialize_any(Shapes)
}

/// A PHY rate of 802.11p, in Mbit/s.
pub(super) fn phy_rate<'de, D: Deserializer<'de>>(from: D) -> Result<PhyRate, D::Error> {
    let mbit_s = f64::deserialize(from)?;
    PhyRate::from_mbit_s(mbit_s).ok_or_else(|| {
        D::Error::custom(format!("802.11p has no rate of {mbit_s} Mbit/s; choose 3, 4.5, 6, 9, 12, 18, 24 or 27"))
    })
}

/// A station id; 0 stands for none in the file.
pub(super) fn station<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom("0 is no station id; choose one from 1")),
        id => Ok(id),
    }
}

/// Times `[[from, to], …]`, in s: each from before its to, in order.
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
                Err(E::custom(format!("m = {m} is outside 0.3 to 100; choose a number inside")))
            }
        }
        from.deserialize_any(Words)
    }
}
