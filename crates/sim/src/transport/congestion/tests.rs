use super::*;

fn ack(ms: u64, delivered: u32, una: u64) -> Ack {
    let rtt = Some(Duration::from_millis(50));
    Ack { now: Instant::from_millis(ms), delivered, rtt, min_rtt: rtt, una, next: una + 1 }
}

fn round(control: &mut Control, ms: u64) {
    let window = control.window;
    control.on_ack(&ack(ms, window, ms * 1000), true, &Coupled::default());
}

#[test]
fn slow_start_doubles_and_reno_adds_one_each_round() {
    let mut reno = Control::new(Congestion::Reno);
    round(&mut reno, 50);
    assert_eq!(reno.window, 20);
    reno.on_loss();
    reno.window = reno.ssthresh;
    assert_eq!(reno.window, 10);
    round(&mut reno, 100);
    assert_eq!(reno.window, 11);
}

#[test]
fn a_window_that_is_not_the_limit_does_not_grow() {
    let mut reno = Control::new(Congestion::Reno);
    reno.on_ack(&ack(50, 10, 1), false, &Coupled::default());
    assert_eq!(reno.window, INITIAL_WINDOW);
}

#[test]
fn cubic_returns_to_its_last_window_after_k_seconds() {
    let mut cubic = Control::new(Congestion::Cubic);
    (cubic.window, cubic.ssthresh) = (100, 100);
    cubic.on_loss();
    cubic.window = cubic.ssthresh;
    assert_eq!(cubic.window, 70);
    // K = cbrt(30 / 0.4) = 4.2 s (RFC 9438 §4.2); with rounds of 50 ms Reno would
    // reach it earlier (§4.3).
    for step in 1..=42 {
        round(&mut cubic, step * 100);
    }
    assert!((98..=101).contains(&cubic.window), "{}", cubic.window);
}

#[test]
fn lia_on_two_equal_paths_grows_like_one_reno() {
    let member = Member { window: 20, rtt: Duration::from_millis(50), loss_interval: 100 };
    let coupled = couple(Congestion::Lia, &[member, member], 0);
    // The increase per acknowledgement is a quarter of Reno's. The two subflows
    // receive twice the acknowledgements, so each grows by half a segment per round.
    assert!((coupled.increase(20.0) * 20.0 - 0.25).abs() < 1e-9);
    let single = couple(Congestion::Lia, &[member], 0);
    assert!((single.increase(20.0) * 20.0 - 1.0).abs() < 1e-9, "with a single path it is Reno");
}

#[test]
fn olia_moves_windows_from_the_widest_to_the_best_path() {
    let wide = Member { window: 40, rtt: Duration::from_millis(50), loss_interval: 50 };
    let best = Member { window: 10, rtt: Duration::from_millis(50), loss_interval: 500 };
    let members = [wide, best];
    let (from, to) = (couple(Congestion::Olia, &members, 0), couple(Congestion::Olia, &members, 1));
    assert_eq!((from.alpha, to.alpha), (-0.5, 0.5));
    let even = couple(Congestion::Olia, &[wide, wide], 0);
    assert_eq!(even.alpha, 0.0);
}
