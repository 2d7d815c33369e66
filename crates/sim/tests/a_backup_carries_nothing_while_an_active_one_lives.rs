//! While a subflow that is not a backup is alive, even if its window is full, a
//! backup carries 0 bytes (RFC 8684 §3.3.8; Linux 6.18: 0 bytes). After the
//! active subflow becomes stale, the backup carries everything.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_sim::transport::scheduler::Scheduler;

#[test]
fn a_backup_carries_nothing_while_an_active_one_lives() {
    for scheduler in [Scheduler::Default, Scheduler::MinRtt, Scheduler::RoundRobin, Scheduler::Priority] {
        let test_paths = [TestPath::new(2.0, 20), TestPath::new(50.0, 5)];
        let plan = [(500, Action::Create { path: 1, backup: true }), (8000, Action::Carry { path: 0, on: false })];
        let mut pair = Pair::new(Setup { scheduler, ..Setup::new(&test_paths, Source::Bulk) }, &plan);
        pair.watch.backups = true;
        pair.run_until_ms(8000);
        assert!(pair.subflow(1).is_some_and(|info| info.transport.backup));
        assert_eq!(pair.carried_between(1, 0, 8000).count(), 0, "{scheduler:?}");
        assert!(pair.arrived[0] > 1_500_000, "{scheduler:?}: the active one is full: {:?}", pair.arrived);
        pair.watch.backups = false;
        pair.run_until_ms(15_000);
        assert!(pair.arrived[1] > 5_000_000, "{scheduler:?}: {:?}", pair.arrived);
    }
}
