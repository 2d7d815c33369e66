//! Two operators' phones in one car: "A Large-Scale Study of the Potential of
//! Multi-Carrier Access in the 5G Era", PAM 2025.
//!
//! A file is the join of two logs on time, AT&T in columns `_x`, Verizon in
//! `_y`. The join fills cells: a row that marks a handover of one operator
//! (status `Start`, `End`, or `newtput`, the first throughput after it) repeats
//! a neighbouring sample of the other at an artificial time, and can be far from
//! its position. Only rows without a mark are measurements. Their time never
//! decreases; a repeated time is the same sample joined twice. A handover (half
//! of them are shorter than 60 ms) is thus not a separate outage in the trace:
//! its cost is part of the half second measured around it.
//!
//! Time zero of both operators is the earlier first sample, so that two traces
//! of one file are synchronous.

use super::Operator;
use super::fault::Fault;
use super::table::{Column, RATE, Row, Table};
use super::trace::{Point, Trace};

const NOTES: [&str; 5] = [
    "Source: \"A Large-Scale Study of the Potential of Multi-Carrier Access in the 5G Era\", PAM 2025,",
    "github.com/NUWiNS/pam2025-multi-carrier-dataset, CC0 1.0",
    "Rate: TCP goodput, one sample about every 0.5 s; not the capacity of the link.",
    "Handovers have no separate rows: their cost is in the samples around them.",
    "Time zero is the earlier first sample of both operators, so the traces of one file are synchronous.",
];

/// The trace of one operator.
pub(super) fn trace(text: &str, operator: Operator) -> Result<Trace, Fault> {
    let table = Table::open(text)?;
    let (att, verizon) = (Side::find(&table, "_x")?, Side::find(&table, "_y")?);
    let direction = if att.rate.name.starts_with("UL") { "uplink" } else { "downlink" };
    let (mut of_att, mut of_verizon) = (Vec::new(), Vec::new());
    for row in table.rows() {
        let row = row?;
        if att.marks_handover(&row) || verizon.marks_handover(&row) {
            continue;
        }
        att.sample(&row, &mut of_att)?;
        verizon.sample(&row, &mut of_verizon)?;
    }
    let firsts = [of_att.first(), of_verizon.first()];
    let zero_ms = firsts.into_iter().flatten().map(|point| point.t_ms).min().unwrap_or(0);
    let (name, points) = match operator {
        Operator::Att => ("AT&T", of_att),
        Operator::Verizon => ("Verizon", of_verizon),
    };
    if points.is_empty() {
        return Err(Fault::no_samples(name));
    }
    let notes = NOTES.map(String::from).to_vec();
    Ok(Trace::new(format!("the {direction} of {name}"), notes, zero_ms, points))
}

/// The columns of one operator.
struct Side {
    time: Column,
    rate: Column,
    status: Column,
}

impl Side {
    fn find(table: &Table, suffix: &str) -> Result<Side, Fault> {
        let column = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| format!("{name}{suffix}")).collect();
            table.column(&names.iter().map(String::as_str).collect::<Vec<_>>())
        };
        Ok(Side {
            time: column(&["TIME_STAMP"])?,
            rate: column(&["ULtput", "DLtput"])?,
            status: column(&["handover_status"])?,
        })
    }

    fn marks_handover(&self, row: &Row) -> bool {
        !row.text(&self.status).is_empty()
    }

    /// Adds the row's sample, if it has one; of equal times the first is used.
    fn sample(&self, row: &Row, points: &mut Vec<Point>) -> Result<(), Fault> {
        if row.text(&self.time).is_empty() || row.text(&self.rate).is_empty() {
            return Ok(());
        }
        let (t_ms, rate) = (row.time_ms(&self.time)?, row.number(&self.rate, &RATE)?);
        match points.last() {
            Some(last) if t_ms == last.t_ms => return Ok(()),
            Some(last) if t_ms < last.t_ms => return Err(Fault::time_backwards(last.t_ms, t_ms).at(row.line)),
            _ => points.push(Point { t_ms, rate_mbit_s: Some(rate), ..Point::default() }),
        }
        Ok(())
    }
}
