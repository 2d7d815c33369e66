//! Roadside WiFi: `final-exp-log.csv` of the FEUP recordings, with one row per
//! second, access point and client.
//!
//! The rate is the number of bytes that the client received in that second, not
//! the mean PHY rate: the latter excludes medium access, retries and frame
//! overhead, and is a mean over received frames only, without the lost ones.
//! An RSSI of −100 means "no frame received". If bytes were received nevertheless
//! (17 of 14,996 rows), only the RSSI is unknown: it keeps its last value.

use std::collections::BTreeSet;

use super::fault::Fault;
use super::table::{BYTES, Column, FLAG, RSSI, Row, Table};
use super::trace::{Point, Trace};

/// RSSI of the recordings if no frame was received.
const NO_FRAME_DBM: f64 = -100.0;

/// Maximum number of access points in an error message.
const MAX_NAMED: usize = 16;

const NOTES: [&str; 5] = [
    "Source: FEUP, Porto, January 2019, github.com/adamiaonr/wifi-vehicles, CC BY 4.0;",
    "changed: the rows of one access point, bytes converted to a rate.",
    "Rate: bytes that the client received from the access point in each second, as Mbit/s: the received part of one",
    "iperf UDP flow (downlink), not the capacity of the link.",
    "RSSI: mean over the second; -100 if no frame was received.",
];

/// The trace of one access point.
pub(super) fn trace(text: &str, ap: &str) -> Result<Trace, Fault> {
    let table = Table::open(text)?;
    let columns = Columns::find(&table)?;
    let mut pass = Pass { ap, client: None, points: Vec::new(), seconds_without_flow: 0 };
    let mut known = BTreeSet::new();
    let mut zero_ms = i64::MAX;
    for row in table.rows() {
        let row = row?;
        let t_ms = row.time_ms(&columns.time)?;
        zero_ms = zero_ms.min(t_ms);
        let sender = row.text(&columns.sender);
        if sender == ap {
            pass.take(&columns, &row, t_ms)?;
        } else if known.len() < MAX_NAMED && !known.contains(sender) {
            known.insert(sender.to_owned());
        }
    }
    match (pass.points.is_empty(), known.is_empty()) {
        (false, _) => Ok(pass.into_trace(zero_ms)),
        (true, true) => Err(Fault::no_samples("any access point")),
        (true, false) => {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(Fault::new(format!("it has no access point `{ap}`"), format!("choose one of {known}")))
        }
    }
}

struct Columns {
    sender: Column,
    receiver: Column,
    time: Column,
    iperf: Column,
    rssi: Column,
    bytes: Column,
}

/// Samples that one client received from the access point.
struct Pass<'a> {
    ap: &'a str,
    client: Option<String>,
    points: Vec<Point>,
    seconds_without_flow: usize,
}

impl Columns {
    fn find(table: &Table) -> Result<Columns, Fault> {
        Ok(Columns {
            sender: table.column(&["senderId"])?,
            receiver: table.column(&["receiverId"])?,
            time: table.column(&["systime"])?,
            iperf: table.column(&["isIperfOn"])?,
            rssi: table.column(&["rssiMean"])?,
            bytes: table.column(&["nBytesReceived"])?,
        })
    }
}

impl Pass<'_> {
    fn take(&mut self, columns: &Columns, row: &Row, t_ms: i64) -> Result<(), Fault> {
        self.same_client(row.text(&columns.receiver)).map_err(|fault| fault.at(row.line))?;
        if let Some(last) = self.points.last().filter(|last| t_ms <= last.t_ms) {
            return Err(Fault::time_backwards(last.t_ms, t_ms).at(row.line));
        }
        let bytes = row.number(&columns.bytes, &BYTES)?;
        let rssi_dbm = row.number(&columns.rssi, &RSSI)?;
        let first = self.points.is_empty();
        let is_received = rssi_dbm > NO_FRAME_DBM;
        if row.number(&columns.iperf, &FLAG)? == 0.0 {
            self.seconds_without_flow += 1;
        }
        self.points.push(Point {
            t_ms,
            rate_mbit_s: Some(bytes * 8.0 / 1e6),
            rssi_dbm: (is_received || bytes == 0.0 || first).then_some(rssi_dbm),
            ..Point::default()
        });
        Ok(())
    }

    fn same_client(&mut self, client: &str) -> Result<(), Fault> {
        let known = self.client.get_or_insert_with(|| client.to_owned());
        if known == client {
            return Ok(());
        }
        let cause = format!("access point `{}` has sent to {known} and to {client}", self.ap);
        Err(Fault::new(cause, "keep the lines of one client (column `receiverId`)"))
    }

    fn into_trace(self, zero_ms: i64) -> Trace {
        let client = self.client.unwrap_or_default();
        let mut notes = NOTES.map(String::from).to_vec();
        notes.push(format!(
            "In {} of the recording's {} seconds no flow is known to have run: a zero there may mean no transmission.",
            self.seconds_without_flow,
            self.points.len()
        ));
        Trace::new(format!("access point {} received by {client}", self.ap), notes, zero_ms, self.points)
    }
}
