//! Datagrams at a constant rate.

use serde::Serialize;
use toml::Table;

use super::keys::{Fault, Keys, table};
use super::{Paced, Protocol, Source, Span, TrafficKind};

pub(super) const KEYS: [&str; 2] = ["size_bytes", "rate_mbit_s"];

/// Maximum rate, in Mbit/s.
const MAX_MBIT_S: f64 = 10_000.0;

/// A stream of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Payload of a datagram, in bytes (24 to 1472).
    pub size_bytes: u32,
    /// Rate of the payload, in Mbit/s (above 0, at most 10,000).
    pub rate_mbit_s: f64,
}

impl Stream {
    pub(super) fn read(keys: &mut Keys) -> Result<Stream, Fault> {
        let size_bytes = keys.need("size_bytes")?;
        Ok(Stream { size_bytes, rate_mbit_s: keys.above_zero("rate_mbit_s", MAX_MBIT_S)? })
    }
}

impl TrafficKind for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn parameters(&self) -> Table {
        table(self)
    }

    fn source(&self, span: Span, _seed: u64) -> Box<dyn Source> {
        Box::new(Paced::new(self.size_bytes, self.period_ns().max(1), span, false))
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Udp]
    }

    fn period_ns(&self) -> u64 {
        (f64::from(self.size_bytes) * 8e3 / self.rate_mbit_s) as u64
    }

    fn message_bytes(&self) -> Option<u32> {
        Some(self.size_bytes)
    }
}
