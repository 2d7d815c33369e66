//! Public recordings and traces. The first bytes select format and cut.

use crosslane::import::{Cut, Operator, Source, import};
use crosslane_core::link::mahimahi;
use crosslane_sim::input::link_trace::Trace;

/// Reads one file.
pub fn run(bytes: &[u8]) {
    let Some((&[kind, from, to], text)) = bytes.split_first_chunk::<3>() else { return };
    let text = String::from_utf8_lossy(text);
    let second = |byte: u8| (byte < 128).then(|| f64::from(byte) / 4.0);
    let cut = Cut { from_s: second(from), to_s: second(to) };
    let fault = match kind % 6 {
        0 => imported(&Source::Pam2025(Operator::Att), &cut, &text),
        1 => imported(&Source::Pam2025(Operator::Verizon), &cut, &text),
        2 => imported(&Source::Feup("ap2".into()), &cut, &text),
        3 => Trace::parse(&text, "trace.csv").err().map(|fault| fault.to_string()),
        4 => Trace::parse(&text, "trace.down").err().map(|fault| fault.to_string()),
        _ => mahimahi::parse("trace", &text).err().map(|fault| fault.to_string()),
    };
    assert!(fault.is_none_or(|fault| !fault.is_empty()));
}

/// An imported recording must be a valid trace.
fn imported(source: &Source, cut: &Cut, text: &str) -> Option<String> {
    match import(source, cut, text, "recording.csv") {
        Ok(trace) => {
            let read = Trace::parse(&trace, "trace.csv");
            assert!(read.is_ok(), "the written trace can be read: {read:?}");
            None
        }
        Err(fault) => Some(fault.to_string()),
    }
}
