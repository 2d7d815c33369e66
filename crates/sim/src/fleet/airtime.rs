//! Sharing of the airtime of one RSU among its stations.

/// Airtime use of a station in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AirtimeUse {
    /// Share of the step for which it occupied the channel (0 to 1).
    pub part: f64,
    /// True if more packets wait: it would use any additional airtime.
    pub backlog: bool,
}

/// The share of the airtime (0 to 1) that the others leave to each station in
/// the next step, in the order of `uses`.
///
/// Water-filling, because DCF gives each station attempts of equal length: a
/// station gets what it requests up to a common level, at which the channel is
/// full. If the channel is not full, each station gets what the others leave.
pub fn shares(uses: &[AirtimeUse]) -> Vec<f64> {
    let Some(level) = level(uses) else {
        let all: f64 = uses.iter().map(|used| used.part).sum();
        return uses.iter().map(|used| 1.0 - all + used.part).collect();
    };
    vec![level; uses.len()]
}

/// The level at which the channel is full; none if it is not full.
fn level(uses: &[AirtimeUse]) -> Option<f64> {
    let mut unsaturated: Vec<f64> = uses.iter().filter(|used| !used.backlog).map(|used| used.part).collect();
    unsaturated.sort_by(f64::total_cmp);
    let (mut free, mut stations) = (1.0, uses.len());
    for part in unsaturated {
        if part * stations as f64 > free {
            break;
        }
        free -= part;
        stations -= 1;
    }
    (stations > 0).then(|| free / stations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsaturated(part: f64) -> AirtimeUse {
        AirtimeUse { part, backlog: false }
    }

    const SATURATED: AirtimeUse = AirtimeUse { part: 0.7, backlog: true };

    fn assert_near(uses: &[AirtimeUse], expected: &[f64]) {
        for (found, expected) in shares(uses).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{uses:?}: {:?}", shares(uses));
        }
    }

    #[test]
    fn a_single_station_has_all_the_airtime() {
        assert_near(&[unsaturated(0.2)], &[1.0]);
        assert_near(&[SATURATED], &[1.0]);
    }

    #[test]
    fn saturated_stations_split_what_the_others_leave() {
        assert_near(&[SATURATED, unsaturated(0.2), SATURATED], &[0.4, 0.4, 0.4]);
        assert_near(&[SATURATED, SATURATED, SATURATED, SATURATED], &[0.25; 4]);
    }

    #[test]
    fn unsaturated_stations_get_what_the_others_do_not_use() {
        assert_near(&[unsaturated(0.1), unsaturated(0.3)], &[0.7, 0.9]);
    }

    #[test]
    fn a_station_that_requests_more_than_the_level_is_limited_to_it() {
        assert_near(&[unsaturated(0.9), unsaturated(0.9), unsaturated(0.1)], &[0.45, 0.45, 0.45]);
    }

    #[test]
    fn the_stations_never_use_more_than_the_whole_airtime() {
        for saturated in 0..5 {
            for part in [0.0, 0.05, 0.2, 0.9] {
                let uses: Vec<AirtimeUse> = (0..5)
                    .map(|n| if n < saturated { SATURATED } else { unsaturated(part * f64::from(n + 1) / 5.0) })
                    .collect();
                let taken: f64 = shares(&uses)
                    .iter()
                    .zip(&uses)
                    .map(|(share, used)| if used.backlog { *share } else { used.part.min(*share) })
                    .sum();
                assert!(taken < 1.0 + 1e-9, "{uses:?}: {taken}");
            }
        }
    }
}
