//! Impairments of a cellular or Wi-Fi link besides its rate: loss and active
//! queue management.

use std::fmt;

use crosslane_core::link::{CoDel, GilbertElliott, Loss};
use crosslane_core::time::Duration;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::schema::{number, period, whole, within};

/// CoDel's target and interval, in ms; the defaults are those of RFC 8289.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoDelKeys {
    #[serde(default = "whole::<5>", deserialize_with = "period::<_, _, 10_000>")]
    target_ms: f64,
    #[serde(default = "whole::<100>", deserialize_with = "period::<_, _, 60_000>")]
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

/// A channel with burst losses (Gilbert–Elliott).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstKeys {
    #[serde(default, deserialize_with = "number::<_, _, 0, 1>")]
    good: f64,
    #[serde(deserialize_with = "number::<_, _, 0, 1>")]
    bad: f64,
    #[serde(deserialize_with = "period::<_, _, 1>")]
    to_bad: f64,
    #[serde(deserialize_with = "period::<_, _, 1>")]
    to_good: f64,
}

/// Independent loss as a number, or burst losses as a table.
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
            within(loss, 0, 1).map(Loss::Independent)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
            let BurstKeys { good, bad, to_bad, to_good } = BurstKeys::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Loss::GilbertElliott(GilbertElliott { good, bad, to_bad, to_good }))
        }
    }
    from.deserialize_any(Shapes)
}
