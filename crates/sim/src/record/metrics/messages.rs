//! Metrics of the messages: delay, pauses, goodput, overhead.

use super::{Run, millis};
use crate::record::rows::MessageRow;

/// Delay of a message. One that was never delivered counts as delivered at the
/// end of the run: a lower bound, so that loss does not reduce the delay.
pub(super) fn delay_ms(message: &MessageRow, end_ns: u64) -> f64 {
    millis(message.received_ns.unwrap_or(end_ns).saturating_sub(message.sent_ns))
}

pub(super) fn lost(run: &Run) -> usize {
    run.records.messages.iter().filter(|m| m.received_ns.is_none()).count()
}

/// Of the messages, those late or never delivered.
pub(super) fn late_share(run: &Run) -> Option<f64> {
    let messages = &run.records.messages;
    let is_late = |message: &&MessageRow| {
        message
            .received_ns
            .is_none_or(|received_ns| millis(received_ns.saturating_sub(message.sent_ns)) > run.context.late_ms)
    };
    (!messages.is_empty()).then(|| messages.iter().filter(is_late).count() as f64 / messages.len() as f64)
}

pub(super) fn delivered_bytes(run: &Run) -> u64 {
    run.records.messages.iter().filter(|m| m.received_ns.is_some()).map(|m| u64::from(m.size_bytes)).sum()
}

pub(super) fn longest_gap_ms(run: &Run) -> Option<f64> {
    let mut deliveries: Vec<u64> = run.records.messages.iter().filter_map(|m| m.received_ns).collect();
    if lost(run) > 0 {
        deliveries.push(run.context.end_ns);
    }
    longest_pause_ms(deliveries, run.context.period_ns)
}

/// The longest time between two reads, in ms.
pub(super) fn longest_read_gap_ms(run: &Run) -> Option<f64> {
    let reads = run.records.reads;
    let last = reads.last.filter(|_| run.objects().is_none())?;
    let end = if lost(run) > 0 { run.context.end_ns.saturating_sub(last.as_nanos()) } else { 0 };
    Some(millis(end.max(reads.longest_gap.as_nanos() as u64)))
}

/// The longest time between two of these, less `period_ns`, in ms.
pub(super) fn longest_pause_ms(mut times_ns: Vec<u64>, period_ns: u64) -> Option<f64> {
    times_ns.sort_unstable();
    let longest = times_ns.windows(2).map(|pair| pair[1] - pair[0]).max()?;
    Some(millis(longest.saturating_sub(period_ns)))
}

pub(super) fn goodput_mbit_s(run: &Run) -> Option<f64> {
    let delivered = || run.records.messages.iter().filter_map(|m| Some((m.received_ns?, m.size_bytes)));
    let (first_ns, first_bytes) = delivered().min()?;
    let last_ns = delivered().map(|(received_ns, _)| received_ns).max()?;
    // The time starts with the delivery of the first message, so its bytes do not count.
    let bytes = delivered_bytes(run) - u64::from(first_bytes);
    (last_ns > first_ns).then(|| bytes as f64 * 8e3 / (last_ns - first_ns) as f64)
}

pub(super) fn overhead_share(run: &Run) -> Option<f64> {
    let payload = delivered_bytes(run);
    let sent = run.sums.sent_ip_bytes[run.context.direction as usize];
    (payload > 0).then(|| sent as f64 / payload as f64 - 1.0)
}
