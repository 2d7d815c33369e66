//! A metric outside the crate: what a new file in `sim/src/record/metrics/` holds. In the
//! crate it needs one more line, its entry in `METRICS`.

use crosslane_core::link::Direction;
use crosslane_sim::record::metrics::{Better, Context, Measure, Metric, PacketSums, Run, measure};
use crosslane_sim::record::rows::{MessageRow, RunRecords};
use crosslane_sim::scenario::Engines;

const METRIC: Metric = Metric {
    name: "message_bytes.max",
    unit: "bytes",
    better: Better::Neither,
    engines: Engines::Both,
    label: "largest message",
    meaning: "size of the largest message",
    measure: Measure::Run(largest),
};

fn largest(run: &Run) -> Option<f64> {
    run.records.messages.iter().map(|message| f64::from(message.size_bytes)).max_by(f64::total_cmp)
}

#[test]
fn a_metric_is_one_file() {
    let message =
        |number, size_bytes| MessageRow { number, sent_ns: 0, written_ns: None, received_ns: None, size_bytes };
    let messages = [message(0, 100), message(1, 300), message(2, 200)];
    let context = Context {
        paths: &[],
        direction: Direction::Up,
        period_ns: 0,
        traffic_start_ns: 0,
        end_ns: 0,
        crossing_ns: None,
        late_ms: 200.0,
        prices: None,
        objects: None,
    };
    let of = |messages: &[MessageRow]| {
        let records = RunRecords { messages, ..RunRecords::default() };
        measure(&[METRIC], &records, &PacketSums::new(0, None), &context).get(METRIC.name).copied()
    };
    assert_eq!((of(&messages), of(&[])), (Some(300.0), None));
}
