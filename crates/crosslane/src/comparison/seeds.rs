//! Seeds on the command line.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Seeds, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// Maximum number of seeds of one call.
const MAX_SEEDS: u64 = 10_000;

/// Reads `7`, `1,2,3` or `1..200` (both ends included).
///
/// # Errors
/// A message that quotes the invalid part.
pub fn parse(text: &str) -> Result<Seeds, String> {
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let range = range(part).ok_or_else(|| format!("{part:?} is not a seed; write 7, or 1,2,3, or 1..200"))?;
        if range.end() - range.start() >= MAX_SEEDS - seeds.len() as u64 {
            return Err(format!("{part:?} makes more than {MAX_SEEDS} seeds; make several calls with fewer"));
        }
        seeds.extend(range);
    }
    let mut distinct = BTreeSet::new();
    match seeds.iter().find(|seed| !distinct.insert(**seed)) {
        Some(twice) => Err(format!("seed {twice} is named twice, and its runs would be the same; name it once")),
        None => Ok(Seeds(seeds)),
    }
}

fn range(part: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = match part.split_once("..") {
        Some((first, last)) => (first.trim().parse().ok()?, last.trim().trim_start_matches('=').parse().ok()?),
        None => {
            let only: u64 = part.trim().parse().ok()?;
            (only, only)
        }
    };
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_numbers_lists_and_ranges_with_both_ends() {
        assert_eq!(parse("7"), Ok(Seeds(vec![7])));
        assert_eq!(parse("1,5,2"), Ok(Seeds(vec![1, 5, 2])));
        assert_eq!(parse("1..4"), Ok(Seeds(vec![1, 2, 3, 4])));
        assert_eq!(parse("9,1..2"), Ok(Seeds(vec![9, 1, 2])));
        for bad in ["", "a", "4..1", "1..", "-1", "2,1..3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("1..10000").map(|seeds| seeds.0.len()), Ok(10_000));
        for bad in ["1..10001", "0..18446744073709551615", "1..9999,10000,10001"] {
            assert!(parse(bad).is_err_and(|fault| fault.contains("makes more than 10000 seeds; make")), "{bad}");
        }
    }
}
