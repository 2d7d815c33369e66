use arrow_array::cast::AsArray;
use arrow_ipc::reader::FileReader;
use crosslane_core::link::{Direction, DropReason};
use crosslane_core::path::Signal;
use crosslane_sim::transport::segment::MptcpOptions;
use crosslane_sim::world::WorldSample;

use super::*;

fn names() -> Vec<String> {
    vec!["its-g5".to_string(), "lte".to_string()]
}

fn packet(number: u64) -> PacketRow {
    PacketRow {
        t_ns: number,
        delivered_ns: number.is_multiple_of(2).then_some(number + 9),
        path: PathId((number % 2) as u8),
        direction: Direction::Up,
        ip_bytes: 1500,
        payload_bytes: 1424,
        subflow: Some(0),
        tcp_seq: 7,
        tcp_ack: 8,
        tcp_flags: 16,
        dsn: Some(number * 1424),
        data_ack: None,
        mptcp: MptcpOptions::DSS,
        drop: (number % 2 == 1).then_some(DropReason::Retries),
        tries: 7,
    }
}

fn read(file: &Path) -> Vec<RecordBatch> {
    let reader = FileReader::try_new(File::open(file).unwrap(), None).unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

/// `name type` of each column, with `?` if it can be null.
fn schema<R>(file: &str, columns: impl Fn(&[R], &[String]) -> Vec<Column>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(file);
    write_table(&file, &names(), &[], columns).unwrap();
    let reader = FileReader::try_new(File::open(&file).unwrap(), None).unwrap();
    let column = |field: &Arc<Field>| {
        let null = if field.is_nullable() { "?" } else { "" };
        format!("{} {}{null}", field.name(), field.data_type())
    };
    reader.schema().fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

#[test]
fn packets_are_read_as_written_over_several_batches() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.arrow");
    let count = BATCH_ROWS as u64 + 3;
    write_table(&file, &names(), &(0..count).map(packet).collect::<Vec<_>>(), packets).unwrap();
    let batches = read(&file);
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS, 3]);
    let last = &batches[1];
    let column = |name: &str| last.column_by_name(name).unwrap();
    assert_eq!(column("t_ns").as_primitive::<types::UInt64Type>().value(1), BATCH_ROWS as u64 + 1);
    assert_eq!(column("path").as_string::<i32>().value(1), "lte");
    assert_eq!(column("drop").as_string::<i32>().value(1), "retries");
    assert_eq!(column("mptcp").as_string::<i32>().value(0), "dss");
    assert_eq!(column("delivered_ns").null_count(), 1);
    assert_eq!(column("drop").null_count(), 2);
    assert_eq!(column("data_ack").null_count(), 3);
}

#[test]
fn the_columns_are_those_of_the_documentation() {
    assert_eq!(
        schema("packets", packets),
        "t_ns UInt64, delivered_ns UInt64?, path Utf8, direction Utf8, ip_bytes UInt16, payload_bytes UInt16, \
         subflow UInt16?, tcp_seq UInt32, tcp_ack UInt32, tcp_flags UInt8, dsn UInt64?, data_ack UInt64?, \
         mptcp Utf8, drop Utf8?, tries UInt8"
    );
    assert_eq!(
        schema("throughput", throughput),
        "t_ns UInt64, path Utf8, direction Utf8, ip_bytes UInt64, payload_bytes UInt64, reinjected_bytes UInt64"
    );
    assert_eq!(
        schema("samples", samples),
        "t_ns UInt64, path Utf8?, kind Utf8, rssi_dbm Float32?, station UInt32?, rsrq_db Float32?, sinr_db Float32?, \
         phy_mbit_s Float64?, latitude_deg Float64?, longitude_deg Float64?, heading_deg Float64?, speed_m_s Float64?, \
         announced Boolean?"
    );
    assert_eq!(
        schema("tcp_info", tcp_info),
        "t_ns UInt64, path Utf8, subflow UInt16?, local Utf8, remote Utf8, token UInt32, backup Boolean, \
         rtt_us UInt32, rttvar_us UInt32, cwnd UInt32, unacked UInt32, lost UInt32, total_retrans UInt32, \
         bytes_acked UInt64, bytes_received UInt64, notsent_bytes UInt32, delivery_rate_bit_s UInt64"
    );
    assert_eq!(
        schema("messages", messages),
        "number UInt64, sent_ns UInt64, written_ns UInt64?, received_ns UInt64?, size_bytes UInt32"
    );
    assert_eq!(
        schema("links", links),
        "t_ns UInt64, path Utf8, x_m Float64, y_m Float64, speed_m_s Float64, distance_m Float64?, \
         rssi_dbm Float32, up_mbit_s Float64, down_mbit_s Float64, delay_ms Float64, loss Float64, \
         sinr_db Float64?, rsrq_db Float64?, carrier_rssi_dbm Float64?, cell UInt8?"
    );
}

#[test]
fn samples_keep_their_signal_and_station() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.arrow");
    let signal = Signal { rssi_dbm: -82.5, station: Some(1000), ..Signal::default() };
    let handover = WorldSample::Handover { path: PathId(1), is_announced: true };
    let rows = [WorldSample::Cam(PathId(0), signal), handover].map(|sample| SampleRow { t_ns: 5, sample });
    write_table(&file, &names(), &rows, samples).unwrap();
    let batch = &read(&file)[0];
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert_eq!(column("rssi_dbm").as_primitive::<types::Float32Type>().value(0), -82.5);
    assert_eq!(column("kind").as_string::<i32>().value(0), "cam");
    assert_eq!(column("station").as_primitive::<types::UInt32Type>().value(0), 1000);
    assert_eq!(column("announced").as_boolean().iter().collect::<Vec<_>>(), [None, Some(true)]);
    assert_eq!((column("rssi_dbm").null_count(), column("path").as_string::<i32>().value(1)), (1, "lte"));
}

#[test]
fn a_full_disk_is_an_error_with_a_remedy() {
    let full = Path::new("/dev/full");
    let error =
        write_table(full, &names(), &(0..20_000).map(packet).collect::<Vec<_>>(), packets).unwrap_err().to_string();
    assert_eq!(
        error,
        "while writing /dev/full: No space left on device; free some space there or give another folder with --out"
    );
}

#[test]
fn an_event_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.jsonl");
    let event = serde_json::json!({
        "t_s": 1.5, "source": "agent", "event": "decision", "path": "lte", "reason": "line\nbreak"
    });
    write_events(&file, [event]).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 1);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["t_s"], 1.5);
    assert_eq!(line["source"], "agent");
    assert_eq!(line["path"], "lte");
}
