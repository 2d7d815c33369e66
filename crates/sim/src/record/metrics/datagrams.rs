//! Metrics of datagram traffic, which has neither retransmission nor
//! head-of-line blocking.

use super::Run;
use super::messages::{self, longest_pause_ms, lost};

/// Share of the sent datagrams that were never received (0 to 1).
pub(super) fn lost_share(run: &Run) -> Option<f64> {
    run.records.duplicates?;
    share(lost(run), run.records.messages.len())
}

/// Share of the received datagrams that arrived after one with a higher sequence
/// number (RFC 4737, section 3.3).
pub(super) fn reordered_share(run: &Run) -> Option<f64> {
    run.records.duplicates?;
    let received = run.records.messages.iter().filter_map(|m| Some((m.received_ns?, m.number)));
    let mut arrivals: Vec<(u64, u64)> = received.collect();
    arrivals.sort_unstable();
    let mut next_expected = 0;
    let mut reordered = 0;
    for &(_, number) in &arrivals {
        match number >= next_expected {
            true => next_expected = number + 1,
            false => reordered += 1,
        }
    }
    share(reordered, arrivals.len())
}

/// Duplicates received, relative to the datagrams sent.
pub(super) fn duplicated_share(run: &Run) -> Option<f64> {
    share(run.records.duplicates? as usize, run.records.messages.len())
}

/// Longest pause in delivery, less the period of the messages, in ms. The loss
/// of one datagram is not a pause; the time from the last delivery to the last
/// datagram sent is.
pub(super) fn longest_gap_ms(run: &Run) -> Option<f64> {
    if run.records.duplicates.is_none() {
        return messages::longest_gap_ms(run);
    }
    let mut times_ns: Vec<u64> = run.records.messages.iter().filter_map(|m| m.received_ns).collect();
    let last_delivery = times_ns.iter().copied().max()?;
    let last_sent = run.records.messages.last().map(|last| last.sent_ns);
    times_ns.extend(last_sent.filter(|&sent_ns| sent_ns > last_delivery));
    longest_pause_ms(times_ns, run.context.period_ns)
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::super::{Context, PacketSums, metrics};
    use crate::record::rows::{MessageRow, RunRecords};
    use crosslane_core::link::Direction;
    use std::collections::BTreeMap;

    const MS: u64 = 1_000_000;

    /// Datagrams sent every 10 ms; `received_ms` counts from the first one sent.
    fn datagrams(received_ms: &[Option<u64>]) -> Vec<MessageRow> {
        let row = |(number, received_ms): (u64, &Option<u64>)| MessageRow {
            number,
            sent_ns: number * 10 * MS,
            written_ns: None,
            received_ns: received_ms.map(|ms| ms * MS),
            size_bytes: 1000,
        };
        (0..).zip(received_ms).map(row).collect()
    }

    fn measured(messages: &[MessageRow], duplicates: Option<u64>) -> BTreeMap<String, f64> {
        let context = Context {
            paths: &[],
            direction: Direction::Up,
            period_ns: 10 * MS,
            traffic_start_ns: 0,
            end_ns: 10_000 * MS,
            crossing_ns: None,
            late_ms: 200.0,
            prices: None,
            objects: None,
        };
        let records = RunRecords { messages, duplicates, ..Default::default() };
        metrics(&records, &PacketSums::new(0, None), &context)
    }

    #[test]
    fn a_datagram_is_reordered_if_a_later_one_arrived_before_it() {
        let in_order = datagrams(&[Some(5), Some(15), None, Some(35)]);
        let reordered_share = |messages: &[MessageRow]| measured(messages, Some(0))["reordered_share"];
        assert_eq!(reordered_share(&in_order), 0.0, "a loss is no reordering");
        let late = datagrams(&[Some(5), Some(40), Some(25), Some(35)]);
        assert_eq!(reordered_share(&late), 0.25, "the second arrived last");
        let early = datagrams(&[Some(5), Some(36), Some(37), Some(35)]);
        assert_eq!(reordered_share(&early), 0.5, "both that the fourth overtook");
    }

    #[test]
    fn lost_datagrams_count_as_loss_and_not_as_delay() {
        let messages = datagrams(&[Some(5), None, Some(25), Some(38)]);
        let found = measured(&messages, Some(2));
        assert_eq!(found["lost_share"], 0.25);
        assert_eq!(found["duplicated_share"], 0.5);
        assert_eq!(found["delivery_delay_ms.max"], 8.0);
        assert_eq!(found["gap_ms.max"], 10.0);
        let of_tcp = measured(&messages, None);
        assert!(!of_tcp.contains_key("lost_share") && of_tcp["delivery_delay_ms.max"] == 9990.0);
    }

    #[test]
    fn the_time_from_the_last_delivery_to_the_last_datagram_is_a_pause() {
        let mut received = vec![None; 30];
        received[0] = Some(5);
        assert_eq!(measured(&datagrams(&received), Some(0))["gap_ms.max"], 275.0);
    }
}
