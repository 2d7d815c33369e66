use super::*;
use crate::record::rows::{AlarmRow, DecisionRow, Reads, SampleRow};
use crate::transport::segment::MptcpOptions;
use crate::world::WorldSample;
use crosslane_core::path::{PathState, Signal};
use crosslane_core::time::Instant;

const SYN: u8 = 2;
const ACK: u8 = 16;
const MS: u64 = 1_000_000;
const WLAN: PathId = PathId(0);
const LTE: PathId = PathId(1);

fn names() -> [String; 2] {
    ["its-g5".to_string(), "lte".to_string()]
}

fn context(paths: &[String]) -> Context<'_> {
    Context {
        paths,
        direction: Direction::Up,
        period_ns: 20 * MS,
        traffic_start_ns: 1000 * MS,
        end_ns: 10_000 * MS,
        crossing_ns: None,
        late_ms: 200.0,
        prices: None,
        objects: None,
    }
}

/// The metrics of records without packets.
fn plain(records: &RunRecords, context: &Context) -> BTreeMap<String, f64> {
    metrics(records, &PacketSums::new(2, None), context)
}

/// The metrics of packets without other records.
fn of_packets(packets: &[PacketRow], context: &Context) -> BTreeMap<String, f64> {
    metrics(&RunRecords::default(), &sums(packets), context)
}

fn sums(packets: &[PacketRow]) -> PacketSums {
    let mut sums = PacketSums::new(2, None);
    packets.iter().for_each(|packet| sums.note(packet));
    sums
}

fn message(number: u64, sent_ms: u64, received_ms: Option<u64>) -> MessageRow {
    MessageRow {
        number,
        sent_ns: sent_ms * MS,
        written_ns: None,
        received_ns: received_ms.map(|ms| ms * MS),
        size_bytes: 1000,
    }
}

fn packet(t_ms: u64, path: PathId, subflow: u16, dsn: u64) -> PacketRow {
    PacketRow {
        t_ns: t_ms * MS,
        delivered_ns: Some((t_ms + 5) * MS),
        path,
        direction: Direction::Up,
        ip_bytes: 1060,
        payload_bytes: 1000,
        subflow: Some(subflow),
        tcp_seq: 1,
        tcp_ack: 1,
        tcp_flags: ACK,
        dsn: Some(dsn),
        data_ack: None,
        mptcp: MptcpOptions::DSS,
        drop: None,
        tries: 1,
    }
}

fn decision(t_ms: u64, path: PathId, state: PathState) -> DecisionRow {
    DecisionRow { t_ns: t_ms * MS, path, state }
}

fn sample(t_ms: u64, rssi_dbm: f32) -> SampleRow {
    let signal = Signal { rssi_dbm, station: Some(1000), ..Signal::default() };
    SampleRow { t_ns: t_ms * MS, sample: WorldSample::Cam(WLAN, signal) }
}

#[test]
fn delays_gaps_and_goodput_are_those_of_the_messages() {
    let messages = [
        message(0, 1000, Some(1010)),
        message(1, 1020, Some(1030)),
        message(2, 1040, Some(1150)),
        message(3, 1060, Some(1150)),
    ];
    let names = names();
    let found = plain(&RunRecords { messages: &messages, ..Default::default() }, &context(&names));
    assert_eq!(found["delivery_delay_ms.p50"], 10.0);
    assert_eq!(found["delivery_delay_ms.p99"], 110.0);
    assert_eq!(found["delivery_delay_ms.max"], 110.0);
    assert_eq!(found["gap_ms.max"], 100.0);
    assert!((found["goodput_mbit_s"] - 3000.0 * 8.0 / 0.140 / 1e6).abs() < 1e-9);
    assert_eq!(found["messages.sent"], 4.0);
    assert_eq!(found["messages.lost"], 0.0);
}

#[test]
fn an_undelivered_message_counts_until_the_end_of_the_run() {
    let messages = [message(0, 1000, Some(1010)), message(1, 1020, None)];
    let names = names();
    let mut reads = Reads::default();
    for at_ms in [1005, 1008, 1010] {
        reads.note(Instant::from_millis(at_ms));
    }
    let records = RunRecords { messages: &messages, reads, ..Default::default() };
    let found = plain(&records, &context(&names));
    assert_eq!(found["read_gap_ms.max"], 8990.0);
    let found = plain(&RunRecords { messages: &messages[..1], ..records }, &context(&names));
    assert_eq!(found["read_gap_ms.max"], 3.0);
    let found = plain(&RunRecords { messages: &messages, ..Default::default() }, &context(&names));
    assert_eq!(found.get("read_gap_ms.max"), None);
    assert_eq!(found["messages.lost"], 1.0);
    assert_eq!(found["delivery_delay_ms.max"], 8980.0);
    assert_eq!(found["gap_ms.max"], 8970.0);
}

#[test]
fn messages_of_more_than_200_ms_and_lost_ones_are_late() {
    let messages = [
        message(0, 1000, Some(1200)),
        message(1, 1020, Some(1221)),
        message(2, 1040, None),
        message(3, 1060, Some(1061)),
    ];
    let names = names();
    let found = plain(&RunRecords { messages: &messages, ..Default::default() }, &context(&names));
    assert_eq!(found["late_share"], 0.5);
}

#[test]
fn a_run_without_messages_has_no_delay() {
    let names = names();
    let found = plain(&RunRecords::default(), &context(&names));
    assert!(!found.contains_key("delivery_delay_ms.max"));
    assert!(!found.contains_key("path.lte.share") && !found.contains_key("late_share"));
    assert_eq!(found["messages.sent"], 0.0);
}

#[test]
fn path_changes_before_the_traffic_are_no_handovers() {
    use PathState::{Active, Backup};
    let decisions = [
        decision(0, LTE, Active),
        decision(300, WLAN, Active),
        decision(5000, WLAN, Backup),
        decision(7000, WLAN, Active),
        decision(7000, LTE, Backup),
    ];
    let messages = [
        message(0, 3990, Some(4190)),
        message(1, 4010, Some(4060)),
        message(2, 5990, Some(6020)),
        message(3, 8010, Some(8990)),
    ];
    let names = names();
    let records = RunRecords { decisions: &decisions, messages: &messages, ..Default::default() };
    let found = plain(&records, &context(&names));
    assert_eq!(found["handover.count"], 2.0);
    assert_eq!(found["handover.first_s"], 5.0);
    assert_eq!(found["handover_delay_ms.max"], 50.0);
}

#[test]
fn without_a_decision_the_delay_is_taken_from_the_expected_crossing_on() {
    let messages = [message(0, 3900, Some(4900)), message(1, 4010, Some(4060)), message(2, 8000, Some(8020))];
    let names = names();
    let context = Context { crossing_ns: Some(5000 * MS), ..context(&names) };
    let found = plain(&RunRecords { messages: &messages, ..Default::default() }, &context);
    assert_eq!(found["handover.count"], 0.0);
    assert_eq!(found["handover_delay_ms.max"], 50.0);
}

#[test]
fn shares_and_retransmissions_count_payload_and_overhead_counts_all_bytes_sent() {
    let mut lost = packet(1000, WLAN, 0, 0);
    lost.delivered_ns = None;
    let packets = [lost, packet(1001, WLAN, 0, 1000), packet(1050, WLAN, 0, 1000), packet(1100, LTE, 1, 0)];
    let messages = [message(0, 1000, Some(1105)), message(1, 1001, Some(1106))];
    let names = names();
    let records = RunRecords { messages: &messages, ..Default::default() };
    let found = metrics(&records, &sums(&packets), &context(&names));
    assert!((found["path.its-g5.share"] - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(found["reinjected_bytes"], 1000.0);
    assert_eq!(found["retransmitted_bytes"], 1000.0);
    assert!((found["overhead_share"] - (4.0 * 1060.0 / 2000.0 - 1.0)).abs() < 1e-12);
}

#[test]
fn join_latency_runs_from_the_first_data_acknowledged_to_the_join() {
    let mut packets = [packet(100, WLAN, 0, 0), packet(104, WLAN, 0, 0), packet(111, LTE, 1, 0)];
    packets[1].direction = Direction::Down;
    packets[1].data_ack = Some(1000);
    packets[2].tcp_flags = SYN;
    packets[2].mptcp = MptcpOptions::JOIN;
    let names = names();
    let found = of_packets(&packets, &context(&names));
    assert_eq!(found["join_latency_ms"], 2.0);
}

#[test]
fn recovery_runs_from_the_first_good_sample_after_a_loss_to_the_first_data() {
    let rule = Recovery { path: WLAN, leave_dbm: -82.0, hysteresis_db: 3.0 };
    let samples =
        [sample(100, -60.0), sample(1900, -85.0), sample(3000, -80.0), sample(3100, -78.0), sample(3200, -70.0)];
    let packets = [packet(1000, WLAN, 0, 0), packet(3050, LTE, 1, 0), packet(3180, WLAN, 2, 0)];
    let names = names();
    let recovery = |samples: &[SampleRow], packets: &[PacketRow]| {
        let mut sums = PacketSums::new(2, Some(rule));
        samples.iter().for_each(|sample| sums.note_sample(sample));
        packets.iter().for_each(|packet| sums.note(packet));
        metrics(&RunRecords::default(), &sums, &context(&names)).get("recovery_ms").copied()
    };
    assert_eq!(recovery(&samples, &packets), Some(80.0));
    assert_eq!(recovery(&samples, &packets[..2]), Some(6900.0), "it never came back");
    assert_eq!(recovery(&samples[3..], &packets), None, "it was never lost");
}

/// The emulator adds packets in order of entry, the simulator in order of exit.
#[test]
fn sums_over_packets_are_the_same_in_order_of_entry_and_of_exit() {
    let mut rng = crosslane_core::rng::Rng::new(7, "sums");
    let mut next = |limit: u32| u64::from(rng.below(limit));
    let mut packets: Vec<PacketRow> = (0..400)
        .map(|place| {
            let path = if next(3) == 0 { LTE } else { WLAN };
            let mut packet = packet(1000 + place * 4, path, u16::from(path.0), next(60) * 500);
            packet.delivered_ns = (next(5) > 0).then_some(packet.t_ns + (1 + next(30)) * MS);
            packet
        })
        .collect();
    (packets[1].direction, packets[1].data_ack, packets[1].delivered_ns) = (Direction::Down, Some(9), Some(1010 * MS));
    (packets[90].tcp_flags, packets[90].mptcp) = (SYN, MptcpOptions::JOIN);
    (packets[91].tcp_flags, packets[91].mptcp) = (SYN, MptcpOptions::JOIN);
    packets[90].delivered_ns = Some(packets[90].t_ns + 90 * MS);
    let rule = Recovery { path: WLAN, leave_dbm: -82.0, hysteresis_db: 3.0 };
    let found = |packets: &[PacketRow]| {
        let mut sums = PacketSums::new(2, Some(rule));
        [sample(100, -60.0), sample(1500, -70.0)].iter().for_each(|sample| sums.note_sample(sample));
        packets.iter().for_each(|packet| sums.note(packet));
        metrics(&RunRecords::default(), &sums, &context(&names()))
    };
    let by_entry = found(&packets);
    assert!(["recovery_ms", "join_latency_ms"].iter().all(|name| by_entry.contains_key(*name)), "{by_entry:?}");
    assert!(by_entry["reinjected_bytes"] > 0.0 && by_entry["retransmitted_bytes"] > 0.0);
    packets.sort_by_key(|packet| packet.delivered_ns.unwrap_or(packet.t_ns));
    assert_eq!(found(&packets), by_entry);
}

#[test]
fn only_alarms_known_to_be_false_count_as_false() {
    let alarm = |was_false| AlarmRow { t_ns: 0, path: WLAN, was_false };
    let alarms = [alarm(None), alarm(Some(true)), alarm(Some(false))];
    let names = names();
    let found = plain(&RunRecords { alarms: &alarms, ..Default::default() }, &context(&names));
    assert_eq!((found["alarms"], found["alarms.false"]), (3.0, 1.0));
}

#[test]
fn throughput_counts_the_bytes_delivered_in_each_tenth_of_a_second() {
    let mut lost = packet(1000, WLAN, 0, 0);
    lost.delivered_ns = None;
    let rows = throughput(&[lost, packet(1098, WLAN, 0, 1000), packet(1099, LTE, 1, 0)]);
    let brief: Vec<_> = rows.iter().map(|r| (r.t_ns / MS, r.path, r.payload_bytes, r.reinjected_bytes)).collect();
    assert_eq!(brief, [(1100, WLAN, 1000, 0), (1100, LTE, 1000, 1000)]);
}
