//! The prediction whether an object meets its deadline.

use super::{Deadline, Due, Source};
use crate::demand::{Admission, Object};
use crate::time::{Duration, Instant};

/// Where the rate of the cheapest path varies, what is planned just in time is complete earlier by this multiple of the
/// shortfall, as a part of the time: what was feared does not come as a rule.
const EARLY: f64 = 0.6;
/// A completion later than a hundred times the time until the deadline is not reported.
const MAX_STEPS: u32 = 10_000;

impl Deadline {
    /// Reports a prediction for new objects, and again once a path is known.
    pub(super) fn admit(&mut self, now: Instant, demand: &[Object], sources: &[Source], due: &[Due]) {
        for (object, due) in demand.iter().zip(due) {
            if object.number < self.predicted {
                continue;
            }
            let known = sources.iter().any(|source| self.rate(sources, source, due.within_s) > 0.0);
            if !known && object.number < self.reported {
                continue;
            }
            self.reported = object.number + 1;
            if known {
                self.predicted = object.number + 1;
            }
            let best = known.then(|| self.earliest_s(sources, due)).flatten();
            let expected = best.map(|best_s| now + Duration::from_secs_f64(self.expected_s(sources, due, best_s)));
            let best = best.map(|after_s| now + Duration::from_secs_f64(after_s));
            self.admissions.push_back(Admission { number: object.number, deadline: object.deadline, best, expected });
        }
    }

    /// When what is due is expected to be complete, in s from now: if the cheapest path does not suffice, the others carry so
    /// little that it is just in time, or somewhat earlier. `best_s`: when all paths together will have carried it, with the
    /// wanted confidence.
    fn expected_s(&self, sources: &[Source], due: &Due, best_s: f64) -> f64 {
        let rate = |source: &Source| source.history.mean_rate(due.within_s).unwrap_or(0.0);
        let took_s = |bytes_s: f64| if bytes_s > 0.0 { due.bytes / bytes_s } else { f64::INFINITY };
        let (cheapest, all) = (sources.first().map_or(0.0, rate), sources.iter().map(rate).sum::<f64>());
        // The last byte arrives half an RTT after it is sent, and the receipt as much later.
        let rtt_s = sources.first().map_or(0.0, |source| source.history.min_rtt().as_secs_f64());
        let in_time_s = due.within_s * (1.0 - EARLY * sources.first().map_or(0.0, |source| self.shortfall(source)));
        (took_s(cheapest) + rtt_s).min(in_time_s).max(best_s.min(took_s(all) + rtt_s))
    }

    /// When all paths together will have carried what is due, in s from now, to a
    /// hundredth of the time until the deadline or 10 ms.
    fn earliest_s(&self, sources: &[Source], due: &Due) -> Option<f64> {
        let all = |within_s: f64| sources.iter().map(|source| self.carries(sources, source, within_s)).sum::<f64>();
        let step_s = (due.within_s / 100.0).max(0.01);
        let lead_s = self.params.margin_ms / 1e3;
        let mut steps = (1..=MAX_STEPS).map(|step| f64::from(step) * step_s);
        steps.find(|&within_s| all(within_s) >= due.bytes).map(|after_s| after_s + lead_s)
    }
}
