use super::*;

/// Share of the links' rates, after headers, that a flow with more to carry gets.
fn filled(links: &[(f64, f64, f64)]) -> f64 {
    let sum: f64 = links.iter().map(|(rate, ..)| rate).sum();
    let mut bed = Bed::new(Mode::Aggregate, links);
    bed.stream(1, sum * 1.1, 6000);
    let most = sum * f64::from(BYTES) / f64::from(BYTES + AROUND + GRE_BYTES);
    bed.goodput(2000, 6000) / most
}

#[test]
fn the_sum_of_unequal_paths_is_found() {
    for links in [
        [(60.0, 0.1, 0.0), (60.0, 0.1, 0.0)],
        [(25.0, 0.1, 0.0), (47.0, 0.1, 0.0)],
        [(246.0, 0.1, 0.0), (469.0, 0.1, 0.0)],
        [(20.0, 10.0, 0.0), (80.0, 30.0, 0.0)],
        [(100.0, 5.0, 0.0), (5.0, 105.0, 0.0)],
        [(5.0, 5.0, 0.0), (100.0, 105.0, 0.0)],
        [(50.0, 20.0, 0.02), (50.0, 20.0, 0.0)],
    ] {
        let filled = filled(&links);
        super::std::eprintln!("{links:?} {filled}");
    }
}

#[test]
fn a_path_that_dies_is_left_and_taken_again() {
    for (rate, what) in [(0.002, "throttled"), (0.0, "silent")] {
        let mut bed = Bed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)]);
        bed.stream(1, 80.0, 3000);
        bed.set(1, rate, 5.0, 0.0);
        bed.stream(1, 80.0, 6000);
        bed.set(1, 47.0, 5.0, 0.0);
        bed.stream(1, 80.0, 9000);
        for from in (2900..9000).step_by(100) {
            super::std::eprint!("{:.0} ", bed.goodput(from, from + 100));
        }
        super::std::eprintln!("{what} {:?} {:?}", bed.ends[0].path(PathId(0)), bed.ends[0].path(PathId(1)));
    }
}

#[test]
fn a_thin_flow_beside_a_bulk_one_is_quick() {
    for links in [[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)], [(20.0, 10.0, 0.02), (80.0, 30.0, 0.0)]] {
        let mut bed = Bed::new(Mode::Aggregate, &links);
        bed.stream(1, 50.0, 1000);
        for step in 0..200u64 {
            bed.offer(2);
            bed.stream(1, 110.0, 1000 + step * 20 + 20);
        }
        bed.run_until(Instant::from_millis(6000));
        let (delays, lost) = bed.delays(2, 1000, 6000);
        super::std::eprintln!(
            "{} {} {} lost {lost}",
            delays[delays.len() / 2],
            delays[delays.len() * 99 / 100],
            delays[delays.len() - 1]
        );
    }
}

#[test]
fn udp_below_the_sum_is_neither_lost_nor_disordered() {
    for links in [
        [(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)],
        [(20.0, 10.0, 0.0), (80.0, 30.0, 0.0)],
        [(20.0, 10.0, 0.02), (80.0, 30.0, 0.0)],
    ] {
        let mut bed = Bed::new(Mode::Aggregate, &links);
        let sum: f64 = links.iter().map(|(rate, ..)| rate).sum();
        bed.stream(1, sum * 0.9 * 1400.0 / 1440.0, 15_000);
        bed.run_until(Instant::from_millis(16_000));
        let (delays, lost) = bed.delays(1, 5000, 15_000);
        let late = bed.ends[1].resequencer.late();
        super::std::eprintln!(
            "udp {links:?} {} {} {} lost {lost} late {late} dropped {}",
            delays[delays.len() / 2],
            delays[delays.len() * 99 / 100],
            delays[delays.len() - 1],
            bed.ends[0].dropped()
        );
    }
}

#[test]
fn redundant() {
    let mut bed = Bed::new(Mode::Redundant, &[(25.0, 10.0, 0.05), (25.0, 10.0, 0.05)]);
    bed.stream(1, 11.2, 20_000);
    bed.run_until(Instant::from_millis(21_000));
    let (delays, lost) = bed.delays(1, 0, 20_000);
    super::std::eprintln!(
        "red {} {} {} lost {lost} of {}",
        delays[delays.len() / 2],
        delays[delays.len() * 99 / 100],
        delays[delays.len() - 1],
        bed.offered[1]
    );
}
