//! Rate limit of the journal: a number of lines for each rule, and a number of
//! bytes in total. Suppressed lines are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use crosslane_core::time::Instant;

/// Mean rate of lines of one rule (an event and its subject), per second.
pub const RULE_LINES_PER_S: f64 = 20.0;
/// Burst of lines of one rule after it was quiet.
pub const RULE_BURST: f64 = 200.0;
/// Mean rate of bytes of all rules, per second. With [`BURST_BYTES`] at most
/// 940,000 bytes in any minute.
pub const BYTES_PER_S: f64 = 9_000.0;
/// Burst of bytes of all rules after all were quiet.
pub const BURST_BYTES: f64 = 400_000.0;
/// Part of the burst that only rules with little recent output may use, so
/// that a rule that floods the journal leaves room for others.
pub const RESERVED_BYTES: f64 = 100_000.0;
/// Period in which suppressed lines of a continuing flood are reported.
pub const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of distinct rules; those beyond share one.
pub const MAX_RULES: usize = 128;
/// Name of the rule that those beyond share.
const OTHERS: &str = "others";

pub struct Limit {
    rules: BTreeMap<String, Rule>,
    bytes: Bucket,
}

struct Rule {
    lines: Bucket,
    /// When suppressed lines were last reported.
    reported: Instant,
    suppressed: u64,
}

struct Bucket {
    level: f64,
    capacity: f64,
    per_s: f64,
    filled: Instant,
}

impl Bucket {
    fn full(now: Instant, capacity: f64, per_s: f64) -> Bucket {
        Bucket { level: capacity, capacity, per_s, filled: now }
    }

    fn level(&mut self, now: Instant) -> f64 {
        self.level = (self.level + now.since(self.filled).as_secs_f64() * self.per_s).min(self.capacity);
        self.filled = now;
        self.level
    }
}

impl Limit {
    /// All buckets are full.
    pub fn new(now: Instant) -> Limit {
        Limit { rules: BTreeMap::new(), bytes: Bucket::full(now, BURST_BYTES, BYTES_PER_S) }
    }

    /// Whether there is room for a line of `bytes` of this rule; if not, it is
    /// counted as suppressed.
    pub fn admit(&mut self, now: Instant, rule: &str, bytes: usize) -> bool {
        let bytes = bytes as f64;
        let together = self.bytes.level(now);
        let rule = self.rule(now, rule);
        let lines = rule.lines.level(now);
        let reserved = if lines < RULE_BURST / 2.0 { RESERVED_BYTES } else { 0.0 };
        // A line suppressed for lack of bytes counts too, or a flood would seem quiet.
        rule.lines.level = (lines - 1.0).max(0.0);
        if lines < 1.0 || together < bytes + reserved {
            rule.suppressed += 1;
            return false;
        }
        self.bytes.level -= bytes;
        true
    }

    /// Counts lines that could not be written.
    pub fn lost(&mut self, now: Instant, rule: &str, lines: u64) {
        self.rule(now, rule).suppressed += lines;
    }

    /// The rules with suppressed lines, and their number: after the end of a
    /// flood, periodically while it lasts, and all of them `at_end`.
    pub fn take_suppressed(&mut self, now: Instant, at_end: bool) -> Vec<(String, u64)> {
        let mut suppressed = Vec::new();
        for (name, rule) in &mut self.rules {
            let is_over = rule.lines.level(now) >= RULE_LINES_PER_S / 2.0;
            let is_due = at_end || is_over || now.since(rule.reported) >= REPORT_PERIOD;
            if rule.suppressed > 0 && is_due {
                rule.reported = now;
                suppressed.push((name.clone(), std::mem::take(&mut rule.suppressed)));
            }
        }
        suppressed
    }

    fn rule(&mut self, now: Instant, name: &str) -> &mut Rule {
        let known = self.rules.contains_key(name) || self.rules.len() < MAX_RULES;
        let new = || Rule { lines: Bucket::full(now, RULE_BURST, RULE_LINES_PER_S), reported: now, suppressed: 0 };
        self.rules.entry(if known { name } else { OTHERS }.to_owned()).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes written in each of `seconds` of a flood of `rules`.
    fn flood(rules: usize, seconds: u64) -> Vec<usize> {
        let mut limit = Limit::new(Instant::ZERO);
        let mut written = Vec::new();
        for second in 0..seconds {
            let mut bytes = 0;
            for step in 0..10_000 {
                let now = Instant::ZERO + Duration::from_secs(second) + Duration::from_micros(100 * step);
                for rule in 0..rules {
                    if limit.admit(now, &format!("rule {rule}"), 300) {
                        bytes += 300;
                    }
                }
            }
            written.push(bytes);
        }
        written
    }

    #[test]
    fn no_minute_has_more_than_a_megabyte_in_any_flood() {
        for rules in [1, 20] {
            let written = flood(rules, 70);
            let max = written.windows(60).map(|minute| minute.iter().sum::<usize>()).max().unwrap_or_default();
            assert!(max <= 1_000_000, "{rules} rules: {max} bytes a minute");
        }
    }

    #[test]
    fn a_rule_that_floods_leaves_room_for_one_that_is_quiet() {
        let mut limit = Limit::new(Instant::ZERO);
        for step in 0..600_000 {
            let now = Instant::ZERO + Duration::from_micros(100 * step);
            for rule in ["a", "b", "c", "d"] {
                limit.admit(now, rule, 300);
            }
            if step % 10_000 == 0 {
                assert!(limit.admit(now, "quiet", 300), "step {step}");
            }
        }
    }

    #[test]
    fn suppressed_lines_are_counted_for_each_rule() {
        let mut limit = Limit::new(Instant::ZERO);
        let admitted = (0..1000).filter(|_| limit.admit(Instant::ZERO, "a", 100)).count();
        limit.admit(Instant::ZERO, "b", 100);
        assert_eq!(limit.take_suppressed(Instant::ZERO, false), []);
        let later = Instant::ZERO + Duration::from_secs(1);
        assert_eq!(limit.take_suppressed(later, false), [("a".to_owned(), 1000 - admitted as u64)]);
        assert_eq!(limit.take_suppressed(later, true), []);
    }

    #[test]
    fn rules_beyond_the_limit_share_one() {
        let mut limit = Limit::new(Instant::ZERO);
        for number in 0..10_000 {
            limit.admit(Instant::ZERO, &number.to_string(), 1);
        }
        assert!(limit.rules.len() <= MAX_RULES + 1);
    }
}
