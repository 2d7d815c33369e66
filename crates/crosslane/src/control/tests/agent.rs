//! Requests about the agent, with both sides of the socket in this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::client::{connect, exchange};
use super::super::protocol::{AGENTS, AgentRequest, MAX_LINE_BYTES, address, write_agent_request};
use super::super::report::{ConnectionPage, ConnectionReport, Done, Report, TokenName};
use super::super::running_agent::{self, RunningAgent};
use super::super::server::{Groups, Server};
use super::tunnel::as_other_user;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::testbed::Namespace;

fn page(from: u32) -> ConnectionPage {
    let connection = |token| ConnectionReport {
        token: TokenName(token),
        class: "default".into(),
        peer: Some("x".repeat(500)),
        accepted: false,
        is_foreign: false,
        subflows: vec![],
    };
    let last = from + 64;
    ConnectionPage {
        connections: (from..last).map(connection).collect(),
        next: (last < 640).then_some(TokenName(last - 1)),
    }
}

fn answer(request: &AgentRequest) -> Result<Report> {
    match request {
        AgentRequest::Connections { after } => Ok(Report::Connections(page(after.map_or(0, |token| token.0 + 1)))),
        AgentRequest::Reload => Ok(Report::Done(Done { changed: vec!["x".into()], needs_restart: vec![] })),
        _ => Err(Error::usage("requesting from the agent", "it has no path \"x\"", "did you mean `y`?")),
    }
}

/// Runs `work` while an agent in this process answers at its name and at `file`.
fn answered<T: Send + 'static>(groups: Groups, file: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut server = Server::new(Clock::start(), groups);
        server.listen_for_demands(file).unwrap();
        let mut work = tokio::task::spawn_blocking(work);
        loop {
            tokio::select! {
                done = &mut work => return done.unwrap(),
                update = server.next() => {
                    update.questions.iter().for_each(|one| server.answer_agent(one, answer(&one.request)));
                }
            }
        }
    })
}

fn name(test: &str) -> String {
    format!("@crosslane-test-{test}-{}", std::process::id())
}

fn ask(name: &str, request: &[u8]) -> Result<Report> {
    exchange(&connect(name).unwrap(), "asking", request)
}

/// The error of a request, as the client reports it.
fn rejection(name: &str, request: &[u8]) -> String {
    ask(name, request).unwrap_err().to_string()
}

#[test]
fn each_wrong_request_has_one_sentence() {
    let of = name("wrong");
    let here = of.clone();
    let sentences = answered(Groups::default(), &of, move || {
        let requests: [&[u8]; 6] = [
            b"{\"version\": 2, \"request\": \"status\"}\n",
            b"{\"request\": \"stats\"}\n",
            b"{\"request\": \"status\", \"objects\": []}\n",
            b"{\"request\": \"reload\"}\n{\"request\": \"reload\"}\n",
            b"{\"request\": {\"explain\": \"x\"}}\n",
            b"garbage\n",
        ];
        requests.map(|request| rejection(&here, request))
    });
    let expected = [
        "the agent's protocol has version 1, not 2; write",
        "unknown variant `stats`",
        "a line has more than one of `objects`, `mode` and `request`; write",
        "a request before the answer to the last one; await each answer",
        "it has no path \"x\"; did you mean `y`?",
        "expected value",
    ];
    for (sentence, expected) in sentences.iter().zip(expected) {
        assert!(sentence.starts_with("while requesting from the agent: ") && sentence.contains(expected), "{sentence}");
    }
}

#[test]
fn a_viewer_may_look_and_changes_nothing() {
    // The other user of the test keeps the group of this process.
    let group = nix::unistd::getgid().as_raw();
    let look = write_agent_request(&AgentRequest::Connections { after: None });
    let ask_all = move |of: String| {
        let demand = b"{\"objects\": []}\n".to_vec();
        let change = write_agent_request(&AgentRequest::Reload);
        as_other_user(move || {
            [look, change, demand].map(|request| ask(&of, &request).map_err(|fault| fault.to_string()))
        })
    };
    let of = name("viewer");
    let (here, asked) = (of.clone(), ask_all.clone());
    let viewers = Groups { viewers: Some(group), senders: None };
    if let Some([looked, changed, demanded]) = answered(viewers, &of, move || asked(here)) {
        assert!(matches!(looked, Ok(Report::Connections(_))), "{looked:?}");
        assert!(changed.unwrap_err().contains("only root and the agent's own user may change it"));
        assert!(demanded.unwrap_err().contains("service.demands_group may announce demands"));
    }
    let of = name("stranger");
    let here = of.clone();
    if let Some([looked, ..]) = answered(Groups::default(), &of, move || ask_all(here)) {
        assert!(looked.unwrap_err().contains("neither root, nor the agent's, nor of service.demands_group"));
    }
}

#[test]
fn all_connections_are_returned_part_by_part() {
    let of = format!("{AGENTS}{}", std::process::id());
    let all = answered(Groups::default(), &of, || RunningAgent::find(Some(std::process::id())).unwrap().connections());
    let tokens: Vec<u32> = all.unwrap().iter().map(|connection| connection.token.0).collect();
    assert_eq!(tokens, (0..640).collect::<Vec<_>>());
}

#[test]
fn a_client_that_never_reads_holds_up_no_other() {
    let of = name("hung");
    let here = of.clone();
    answered(Groups::default(), &of, move || {
        let request = write_agent_request(&AgentRequest::Connections { after: None });
        let mut hung = connect(&here).unwrap();
        hung.set_nonblocking(true).unwrap();
        // One request after the other, and no answer is read: the agent keeps a bounded part of them.
        for _ in 0..200 {
            drop(hung.write(&request));
            let began = Clock::start();
            assert!(ask(&here, &request).is_ok());
            assert!(began.now().as_secs_f64() < 1.0);
        }
        hung.set_nonblocking(false).unwrap();
        hung.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let (mut received, mut buffer) = (0, [0; 1 << 16]);
        while let Ok(length @ 1..) = hung.read(&mut buffer) {
            received += length;
        }
        assert!(received > 0 && received < 20 * MAX_LINE_BYTES, "{received} bytes");
    });
}

#[test]
fn clients_that_request_at_once_are_answered_in_turns() {
    let of = name("turns");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Server::new(Clock::start(), Groups::default());
        server.listen_for_demands(&of).unwrap();
        let mut clients: Vec<UnixStream> = (0..3).map(|_| connect(&of).unwrap()).collect();
        let request = |number: usize| write_agent_request(&AgentRequest::Explain(number.to_string()));
        (0..3).for_each(|number| clients[number].write_all(&request(number)).unwrap());
        let mut answered = Vec::new();
        while answered.len() < 6 {
            let update = server.next().await;
            assert!(update.questions.len() <= 1, "{:?}", update.questions);
            for question in &update.questions {
                let AgentRequest::Explain(number) = &question.request else { panic!("{question:?}") };
                answered.push(number.clone());
                // The first one requests again at once.
                if number == "0" {
                    clients[0].write_all(&request(0)).unwrap();
                }
            }
        }
        assert_eq!(answered[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{answered:?}");
    });
}

#[test]
fn a_client_that_does_not_read_its_answer_is_dropped_and_one_that_reads_late_is_not() {
    let of = name("unread");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = Server::new(Clock::start(), Groups::default());
        server.listen_for_demands(&of).unwrap();
        let mut clients = [connect(&of).unwrap(), connect(&of).unwrap()];
        let request = write_agent_request(&AgentRequest::Connections { after: None });
        let mut left = None;
        for turn in 0..200 {
            clients.iter_mut().for_each(|client| drop(client.write(&request)));
            // Enough answers that the last ones do not fit into the socket.
            while let Ok(update) = tokio::time::timeout(Duration::from_millis(5), server.next()).await {
                update.questions.iter().for_each(|one| server.answer_agent(one, answer(&one.request)));
            }
            if turn >= 100 {
                // The second one reads a little between the checks.
                let _ = clients[1].read(&mut [0; 40_000]);
                let update = server.drop_slow();
                left = left.or((!update.faults.is_empty()).then_some((turn, update.faults)));
            }
        }
        let sentence = "while requesting from the agent: the client does not read its answer; read each answer";
        assert_eq!(left, Some((104, vec![sentence.to_owned()])));
        clients.iter().for_each(|client| client.set_read_timeout(Some(Duration::from_millis(300))).unwrap());
        let mut ends = clients.iter().map(|mut client| client.read_to_end(&mut Vec::new()).is_ok());
        assert_eq!((ends.next(), ends.next()), (Some(true), Some(false)), "only the first one was dropped");
    });
}

/// What the client says of an agent that answers any request with `bytes` and goes.
fn of_an_agent_that_answers(test: &str, bytes: &'static [u8]) -> String {
    let name = name(test);
    let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let agent = thread::spawn(move || {
        let mut stream: UnixStream = listener.accept().unwrap().0;
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(bytes).unwrap();
    });
    let sentence = rejection(&name, &write_agent_request(&AgentRequest::Status));
    agent.join().unwrap();
    sentence
}

#[test]
fn an_agent_that_goes_within_its_answer_is_reported_in_a_sentence() {
    let check = "check whether it hangs or has another version";
    let sentence = of_an_agent_that_answers("half", b"{\"status\": {\"versi");
    assert_eq!(sentence, format!("while asking: it closed the connection within its answer; {check}"));
    let sentence = of_an_agent_that_answers("other", b"{\"status\": {\"version\": 7}}\n");
    assert_eq!(sentence, format!("while asking: it closed the connection; {check}"));
}

/// Listens at an agent's name and accepts nothing, with a full queue.
fn full(pid: u32) -> [Socket; 2] {
    let address = address(&format!("{AGENTS}{pid}")).unwrap();
    let socket = || Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
    let (listener, client) = (socket(), socket());
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    client.connect(&address).unwrap();
    [listener, client]
}

#[test]
fn names_of_other_users_hold_up_nothing_and_a_busy_agent_is_found() {
    // Abstract names belong to the network namespace.
    let Ok(namespace) = Namespace::new() else { return eprintln!("not run: only root can make a namespace") };
    let look = || {
        let Some(squatters) = as_other_user(|| [900_001, 900_002, 900_003].map(full)) else { return };
        let began = Clock::start();
        assert_eq!(running_agent::other(), None);
        let took_s = began.now().as_secs_f64();
        assert!(took_s < 1.0, "{took_s} s");
        let busy = full(900_004);
        assert_eq!(running_agent::other(), Some(900_004));
        assert!(RunningAgent::find(None).is_ok());
        let took_s = began.now().as_secs_f64();
        assert!(took_s < 1.0, "{took_s} s");
        drop((squatters, busy));
    };
    namespace.enter(look).unwrap();
}
