//! The tables of counters in `/proc/net/netstat` and `/proc/net/snmp`: a line of names and a line of values.

/// The counters of a table, as `MPTcpExt`, by their names; none if this kernel lacks it. `None`: it lacks the table.
pub fn table<'a>(text: &'a str, table: &str) -> Option<impl Fn(&str) -> Option<u64> + use<'a>> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(": "));
    let (names, values) = (lines.next()?, lines.next()?);
    Some(move |name: &str| {
        let place = names.split(' ').position(|other| other == name)?;
        values.split(' ').nth(place)?.parse().ok()
    })
}
