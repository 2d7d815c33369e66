//! Timestamped messages, sent periodically; in kind `ping-pong` the server
//! answers each.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use toml::Table;

use super::keys::{Fault, Keys, table};
use super::{Paced, Protocol, Source, Span, TrafficKind};

pub(super) const KEYS: [&str; 2] = ["size_bytes", "every_ms"];

/// Range of the period, in ms.
const EVERY_MS: RangeInclusive<f64> = 0.01..=60_000.0;

/// Timestamped messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Messages {
    /// Size of a message, in bytes (16 to 1,000,000).
    pub size_bytes: u32,
    /// Period, in ms (0.01 to 60,000).
    pub every_ms: f64,
    /// True if the server answers each message.
    #[serde(skip)]
    pub is_answered: bool,
}

impl Messages {
    pub(super) fn read(keys: &mut Keys, is_answered: bool) -> Result<Messages, Fault> {
        let size_bytes = keys.need("size_bytes")?;
        Ok(Messages { size_bytes, every_ms: keys.within("every_ms", EVERY_MS, None)?, is_answered })
    }
}

impl TrafficKind for Messages {
    fn name(&self) -> &'static str {
        if self.is_answered { "ping-pong" } else { "messages" }
    }

    fn parameters(&self) -> Table {
        table(self)
    }

    fn source(&self, span: Span, _seed: u64) -> Box<dyn Source> {
        Box::new(Paced::new(self.size_bytes, self.period_ns().max(1), span, self.is_answered))
    }

    fn protocols(&self) -> &'static [Protocol] {
        if self.is_answered { &[Protocol::Tcp] } else { &[Protocol::Tcp, Protocol::Udp] }
    }

    fn period_ns(&self) -> u64 {
        (self.every_ms * 1e6) as u64
    }

    fn message_bytes(&self) -> Option<u32> {
        Some(self.size_bytes)
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn with_rate(&self, mbit_s: f64) -> Option<Arc<dyn TrafficKind>> {
        Some(Arc::new(Messages { every_ms: f64::from(self.size_bytes) * 8.0 / mbit_s / 1000.0, ..*self }))
    }
}
