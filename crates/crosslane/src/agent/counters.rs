//! Packet counters of the paths' interfaces: one read of a kernel table,
//! whose cost does not depend on the number of connections.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crosslane_core::path::{Counters, PathId, Sample, SampleKind};

use super::config::Config;

/// Maximum number of bytes read from the table; interfaces beyond it have no counters.
const TABLE_BYTES: usize = 16 * 1024;

/// Interface of packets that do not leave the machine.
const LOOPBACK: &str = "lo";

/// The table of interfaces of this thread's network namespace.
pub struct InterfaceCounters {
    table: Option<File>,
    names: Vec<String>,
    text: Vec<u8>,
    /// The previous counters of each path.
    last: Vec<Counters>,
}

impl InterfaceCounters {
    pub fn open(config: &Config) -> InterfaceCounters {
        InterfaceCounters {
            table: File::open("/proc/thread-self/net/dev").ok(),
            names: config.paths.iter().map(|path| path.get_ref().interface().to_owned()).collect(),
            text: vec![0; TABLE_BYTES],
            last: vec![Counters::default(); config.paths.len()],
        }
    }

    /// Gives a path this interface; an empty name: the path was removed.
    pub fn assign(&mut self, path: PathId, interface: &str) {
        let (place, paths) = (usize::from(path.0), self.names.len().max(usize::from(path.0) + 1));
        self.names.resize(paths, String::new());
        self.last.resize(paths, Counters::default());
        (self.names[place], self.last[place]) = (interface.into(), Counters::default());
    }

    /// The present counters of each path whose interface exists; true if over one of them
    /// packets were sent since the last call, and none received.
    pub fn sample(&mut self) -> (Vec<Sample>, bool) {
        let samples = self.read();
        let mut is_waiting = false;
        for sample in &samples {
            if let SampleKind::Counters(now) = sample.kind {
                let last = std::mem::replace(&mut self.last[usize::from(sample.path.0)], now);
                is_waiting |= now.sent != last.sent && now.received == last.received;
            }
        }
        (samples, is_waiting)
    }

    /// Bytes sent and received by each interface of the table.
    pub fn bytes(&mut self) -> BTreeMap<String, [u64; 2]> {
        let length = self.table.as_ref().map_or(0, |table| read_whole(table, &mut self.text));
        let text = std::str::from_utf8(&self.text[..length]).unwrap_or_default();
        text.lines().filter_map(line).map(|(name, [received, _, sent, _])| (name.into(), [sent, received])).collect()
    }

    /// Packets sent and received over all interfaces but loopback, unless that is a path's; `None`: the table cannot be
    /// read as a whole.
    pub fn packets_beyond_loopback(&mut self) -> Option<u64> {
        let length = self
            .table
            .as_ref()
            .map(|table| read_whole(table, &mut self.text))
            .filter(|length| (1..TABLE_BYTES).contains(length))?;
        let text = std::str::from_utf8(&self.text[..length]).ok()?;
        let counts = |name: &str| name != LOOPBACK || self.names.iter().any(|path| path == LOOPBACK);
        let packets = text.lines().filter_map(line).filter(|(name, _)| counts(name));
        Some(packets.map(|(_, [_, received, _, sent])| received + sent).sum())
    }

    fn read(&mut self) -> Vec<Sample> {
        let length = self.table.as_ref().map_or(0, |table| read_whole(table, &mut self.text));
        let text = std::str::from_utf8(&self.text[..length]).unwrap_or_default();
        let sample = |(name, counters): (&str, Counters)| {
            let place = self.names.iter().position(|wanted| wanted == name)?;
            Some(Sample { path: PathId(place as u8), kind: SampleKind::Counters(counters) })
        };
        text.lines().filter_map(counters).filter_map(sample).collect()
    }
}

/// Reads until the end of the table or of the buffer; the kernel returns a page at a time.
fn read_whole(table: &File, text: &mut [u8]) -> usize {
    let mut length = 0;
    while let Ok(more @ 1..) = table.read_at(&mut text[length..], length as u64) {
        length += more;
    }
    length
}

/// One interface's line (Linux `net/core/net-procfs.c`): bytes and packets received,
/// six other counters, bytes and packets sent.
fn line(line: &str) -> Option<(&str, [u64; 4])> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    Some((name.trim_start(), [*numbers.first()?, *numbers.get(1)?, *numbers.get(8)?, *numbers.get(9)?]))
}

/// Packets received and sent.
fn counters(text: &str) -> Option<(&str, Counters)> {
    let (name, [_, received, _, sent]) = line(text)?;
    Some((name, Counters { received, sent }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn packet_counters_of_an_interface_are_parsed() {
        let line = "its-g5: 1000 10    0    0    0     0          0         0  2000      20    0    0    0     0       0          0";
        assert_eq!(super::line(line), Some(("its-g5", [1000, 10, 2000, 20])));
        assert_eq!(counters(line), Some(("its-g5", Counters { received: 10, sent: 20 })));
        for other in
            ["Inter-|   Receive  |  Transmit", " face |bytes packets errs|bytes packets", "lo: 1", "lo: a b", ""]
        {
            assert_eq!(counters(other), None, "{other}");
        }
    }

    #[test]
    fn a_table_of_several_pages_is_read_completely() {
        let (long, mut text) = (File::open("/proc/self/smaps").unwrap(), vec![0; TABLE_BYTES]);
        assert_eq!(read_whole(&long, &mut text), TABLE_BYTES);
    }

    #[test]
    fn packets_over_loopback_count_only_where_it_is_a_path() {
        let mut file = tempfile::tempfile().unwrap();
        let line = |name: &str, packets: u32| format!("{name}: 1 {packets} 0 0 0 0 0 0 1 {packets} 0 0 0 0 0 0\n");
        write!(file, "{}{}", line("lo", 100), line("lte", 3)).unwrap();
        let mut counters = InterfaceCounters {
            table: Some(file),
            names: vec!["lte".into()],
            text: vec![0; TABLE_BYTES],
            last: vec![Counters::default()],
        };
        assert_eq!(counters.packets_beyond_loopback(), Some(6));
        counters.assign(PathId(1), "lo");
        assert_eq!(counters.packets_beyond_loopback(), Some(206));
        counters.table = None;
        assert_eq!(counters.packets_beyond_loopback(), None);
    }

    #[test]
    fn this_kernel_has_interface_counters() {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        assert!(table.lines().filter_map(counters).any(|(name, _)| name == "lo"));
    }
}
