//! Echo requests over the paths that carry nothing, and what they show as samples.

use alloc::format;

use super::{Agent, Output};
use crate::actuator::Event;
use crate::echo::Echoes;
use crate::path::{PathId, PathSpec, Sample, SampleKind};
use crate::reason::Reason;
use crate::time::{Duration, Instant};

impl Agent {
    /// Sends echo requests over the present paths, which are these, each with its period; `None`: none over it.
    pub fn set_echoes(&mut self, specs: &[PathSpec], periods: &[Option<Duration>]) {
        self.echoes = Echoes::new(periods);
        for (path, spec) in (0..).map(PathId).zip(specs) {
            self.echoes.set_address(path, spec.local.is_some());
        }
    }

    pub(super) fn note_address(&mut self, event: &Event) {
        if let Event::Address { path, local, .. } = event {
            self.echoes.set_address(*path, local.is_some());
        }
    }

    pub(super) fn on_echo_answer(&mut self, now: Instant, path: PathId, number: u16) {
        if let Some(echo) = self.echoes.on_answer(now, path, number) {
            self.assess_sample(now, &Sample { path, kind: SampleKind::Echo(echo) });
            self.assess(now);
        }
    }

    /// Outputs the requests that are due; over a path that is closed by its volume none is.
    pub(super) fn send_echoes(&mut self, now: Instant) {
        let paths = &self.paths;
        let may_send = |path: PathId| paths.get(usize::from(path.0)).is_some_and(|path| !path.is_barred());
        let Some(due) = self.echoes.poll(now, may_send) else { return };
        let path = due.path;
        self.reports.outputs.push_back(Output::Echo(path, due.number));
        if let Some(unanswered) = due.unanswered {
            let text =
                format!("none of {unanswered} echo requests was answered: they say nothing of this path until one is");
            let reason = Reason::plain("echo.unanswered", text).with([("requests", unanswered.into())]);
            self.reports.outputs.push_back(Output::EchoUnanswered { path, reason });
        }
        self.assess_sample(now, &Sample { path, kind: SampleKind::Echo(due.sample) });
        self.assess(now);
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use super::*;
    use crate::agent::Input;
    use crate::allocate::Mode;
    use crate::engine::Engine;
    use crate::path::Rat;
    use crate::strategy::adaptive::Params;
    use crate::volume::Volume;

    fn spec(name: &str) -> PathSpec {
        let local = Some([10, 0, 0, 2].into());
        PathSpec { name: name.into(), rat: Rat::Lte, local, if_index: 1, radio: None }
    }

    /// An agent of two paths that are up.
    fn agent() -> Agent {
        let specs = [spec("a"), spec("b")];
        let mut agent = Agent::new(&specs, &[0, 1], Mode::Backup, Arc::new(Params::default()), Vec::new());
        agent.set_echoes(&specs, &[Some(Duration::from_millis(200)); 2]);
        for path in [PathId(0), PathId(1)] {
            agent.handle(Instant::ZERO, Sample { path, kind: SampleKind::Link { up: true } }.into());
        }
        agent
    }

    /// The requests sent until a time, of which those over the first path are answered at once.
    fn run(agent: &mut Agent, until_ms: u64) -> Vec<(PathId, u64)> {
        let (mut sent, mut now) = (Vec::new(), Instant::ZERO);
        while now <= Instant::from_millis(until_ms) {
            while let Some(output) = agent.poll(now) {
                if let Output::Echo(path, number) = output {
                    sent.push((path, now.as_nanos() / 1_000_000));
                    if path.0 == 0 {
                        agent.handle(now, Input::EchoAnswer(path, number));
                    }
                }
            }
            let Some(next) = agent.next_wakeup() else { break };
            assert!(next > now, "it would be asked for ever");
            now = next;
        }
        sent
    }

    #[test]
    fn requests_leave_over_every_idle_path_and_not_over_one_whose_volume_is_used_up() {
        let mut agent = agent();
        let reason = Reason::plain("volume", "used up");
        agent.handle(Instant::ZERO, Input::Volume(PathId(1), Volume::Exhausted, reason));
        let sent = run(&mut agent, 1000);
        assert_eq!(sent.len(), 6, "{sent:?}");
        assert!(sent.iter().all(|(path, _)| path.0 == 0), "{sent:?}");
    }

    #[test]
    fn what_requests_show_reaches_the_strategy_and_an_address_that_never_answers_is_reported() {
        let mut agent = agent();
        let (mut beliefs, mut reports, mut now) = (Vec::new(), Vec::new(), Instant::ZERO);
        while now <= Instant::from_millis(60_000) {
            while let Some(output) = agent.poll(now) {
                match output {
                    // Path a answers for a second.
                    Output::Echo(path, number) if path.0 == 0 && now < Instant::from_millis(1000) => {
                        agent.handle(now, Input::EchoAnswer(path, number));
                    }
                    Output::Belief { path, reason, .. } => beliefs.push((path.0, reason.rule)),
                    Output::EchoUnanswered { path, reason } => reports.push((path.0, reason.rule)),
                    _ => {}
                }
            }
            now = agent.next_wakeup().unwrap();
        }
        assert_eq!(beliefs, [(0, "quality.link-up"), (1, "quality.link-up"), (0, "quality.echo")]);
        assert_eq!(reports, [(1, "echo.unanswered")]);
    }
}
