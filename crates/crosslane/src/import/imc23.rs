//! Three operators' pings in one car: Ghoshal et al., "Performance of Cellular Networks on the Wheels",
//! Proc. ACM IMC 2023, as one file per segment with a line per slot of 0.2 s (`docs/guide/real-data.md`).
//!
//! Time zero of all operators is the segment's, so the traces of one file are synchronous.

use super::Imc23Operator;
use super::fault::Fault;
use super::pings::{self, Columns};
use super::table::Table;
use super::trace::{Cut, Trace};

const NOTES: [&str; 3] = [
    "Source: \"Performance of Cellular Networks on the Wheels\", IMC 2023,",
    "github.com/NUWiNS/imc2023-cellular-network-performance-on-wheels-data",
    "Five pings of 66 bytes a second over an idle link; signal: RSRP of the LTE cell.",
];

/// The trace of one operator, of a part of the recording.
pub(super) fn trace(text: &str, operator: Imc23Operator, cut: &Cut) -> Result<Trace, Fault> {
    let table = Table::open(text)?;
    let (prefix, name) = match operator {
        Imc23Operator::Verizon => ("verizon", "Verizon"),
        Imc23Operator::Att => ("att", "AT&T"),
        Imc23Operator::Tmobile => ("tmobile", "T-Mobile"),
    };
    let column = |end: &str| table.column(&[format!("{prefix}_{end}").as_str()]);
    let time = table.column(&["t_s"])?;
    let columns = Columns { rtt: column("rtt_ms")?, lost: column("lost")?, rssi: column("rsrp_dbm")? };
    let (mut samples, mut end_ms) = (Vec::new(), 0);
    for row in table.rows() {
        let row = row?;
        end_ms = row.time_ms(&time)?;
        pings::add(&mut samples, columns.sample(&row, end_ms)?).map_err(|fault| fault.at(row.line))?;
    }
    pings::replay(name, NOTES.map(String::from).to_vec(), [0, end_ms], &samples, cut)
}
