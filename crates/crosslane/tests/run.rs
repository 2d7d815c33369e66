//! `crosslane run`: programs whose TCP sockets become MPTCP sockets.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::program::{CROSSLANE, not_run};
use crosslane::netlink::diag::Diag;
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

/// Prints the protocols of an IPv4 and an IPv6 TCP socket, and of one for UDP.
const SOCKETS: &str = "import socket as s
for family, kind in ((s.AF_INET, s.SOCK_STREAM), (s.AF_INET6, s.SOCK_STREAM), (s.AF_INET, s.SOCK_DGRAM)):
    print(s.socket(family, kind).getsockopt(s.SOL_SOCKET, 38), end=' ')
";
const MPTCP: &str = "262 262 17 ";
const TCP: &str = "6 6 17 ";

/// A server and a client; prints whether each connection is MPTCP, what came back, and the flags of the descriptor.
const EXCHANGE: &str = "import fcntl, os, socket as s
listener = s.socket(); listener.bind(('127.0.0.1', 0)); listener.listen()
client = s.socket(s.AF_INET, s.SOCK_STREAM | s.SOCK_NONBLOCK)
print(fcntl.fcntl(client, fcntl.F_GETFD), fcntl.fcntl(client, fcntl.F_GETFL) & os.O_NONBLOCK != 0, end=' ')
client.setblocking(True); client.connect(listener.getsockname())
server = listener.accept()[0]
client.sendall(b'there'); server.sendall(server.recv(5) + b' and back')
print(client.recv(100).decode(), client.getsockopt(s.IPPROTO_TCP, 43), server.getsockopt(s.IPPROTO_TCP, 43))
";

const STATIC: &str = r#"
#include <stdio.h>
#include <sys/socket.h>
int main(void) {
    int protocol = 0; socklen_t length = sizeof protocol;
    if (getsockopt(socket(AF_INET, SOCK_STREAM, 0), SOL_SOCKET, SO_PROTOCOL, &protocol, &length)) return 1;
    printf("%d", protocol);
    return 0;
}
"#;

/// A client that sends "hello", and ends when it has the answer. Go programs make their system calls themselves.
const GO: &str = r#"package main

import (
	"io"
	"net"
	"os"
)

func main() {
	client, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	client.Write([]byte("hello"))
	answer := make([]byte, 5)
	io.ReadFull(client, answer)
	os.Stdout.Write(answer)
}
"#;

fn run(arguments: &[&str]) -> Output {
    Command::new(CROSSLANE).args(["run", "--"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether this machine can run such programs; otherwise says why not.
fn can_run() -> bool {
    let output = run(&["true"]);
    if !output.stderr.is_empty() {
        not_run(text(&output.stderr));
    }
    output.stderr.is_empty()
}

/// Supervisors of this user whose program's folder is this one.
fn supervisors() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(CROSSLANE.as_bytes()) && text(line).contains("\0--detached")).count()
}

#[test]
fn the_tcp_sockets_of_a_program_are_mptcp_sockets() {
    if !can_run() {
        return;
    }
    assert_eq!(text(&run(&["python3", "-c", SOCKETS]).stdout), MPTCP);
    let output = run(&["python3", "-c", EXCHANGE]);
    assert_eq!(text(&output.stdout), "1 True there and back 1 1\n", "{}", text(&output.stderr));
    assert_eq!(text(&run(&["python3", "-c", "open('/dev/null')"]).stderr), "");
}

#[test]
fn a_program_that_is_linked_statically_is_no_exception() {
    if !can_run() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("s.c"), folder.path().join("s"));
    fs::write(&source, STATIC).unwrap();
    let compiled = Command::new("cc").args(["-static", "-o"]).args([&program, &source]).output();
    if !compiled.is_ok_and(|compiled| compiled.status.success()) {
        not_run("cc makes no static program; on Debian: apt-get install libc6-dev");
        return;
    }
    assert_eq!(text(&Command::new(&program).output().unwrap().stdout), "6");
    assert_eq!(text(&run(&[program.to_str().unwrap()]).stdout), "262");
}

/// The kernel's list of sockets is the judge: the client's socket has an MPTCP part.
#[test]
fn a_connection_of_a_go_program_is_mptcp() {
    if !can_run() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        not_run("only root sees in sock_diag whether a socket is MPTCP");
        return;
    }
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("client.go"), folder.path().join("client"));
    fs::write(&source, GO).unwrap();
    let mut compiler = Command::new("go");
    compiler.args(["build", "-o"]).args([&program, &source]).current_dir(folder.path());
    compiler.env("GOCACHE", folder.path().join("cache")).env("GOPATH", folder.path()).env("GOTOOLCHAIN", "local");
    match compiler.env("CGO_ENABLED", "0").output() {
        Ok(compiled) if compiled.status.success() => {}
        Ok(compiled) => panic!("{}", text(&compiled.stderr)),
        Err(cause) => {
            not_run(&format!("starting go: {cause}; on Debian: apt-get install golang-go"));
            return;
        }
    }
    let program = program.to_str().unwrap();
    assert!(!is_mptcp(|address| Command::new(program).arg(address).stdout(Stdio::piped()).spawn().unwrap()));
    let with_run = |address: &str| {
        Command::new(CROSSLANE).args(["run", "--", program, address]).stdout(Stdio::piped()).spawn().unwrap()
    };
    assert!(is_mptcp(with_run));
}

/// Whether the connection of a client, which is started with the address of the server, is MPTCP.
fn is_mptcp(client: impl FnOnce(&str) -> std::process::Child) -> bool {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let client = client(&address.to_string());
    let (server, from) = listener.accept().unwrap();
    { &server }.read_exact(&mut [0; 5]).unwrap();
    let socket = Diag::open().unwrap().socket(from.as_socket().unwrap(), address).unwrap().unwrap();
    { &server }.write_all(b"there").unwrap();
    assert_eq!(text(&client.wait_with_output().unwrap().stdout), "there");
    socket.mptcp.is_some()
}

#[test]
fn a_program_is_as_without_it_but_for_its_sockets() {
    let mut command = Command::new(CROSSLANE);
    command.args(["run", "sh", "-c", "wait; echo $$ \"$1\"; exit 7", "sh", "--help"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), (format!("{id} --help\n").as_str(), Some(7)));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let missing = run(&["no-such-program"]);
    let fault = "crosslane: while starting no-such-program: No such file or directory (os error 2)\n";
    assert_eq!((text(&missing.stderr), missing.status.code()), (fault, Some(127)));
    let folder = run(&["/"]);
    assert_eq!(folder.status.code(), Some(126), "{}", text(&folder.stderr));
}

#[test]
fn what_a_program_leaves_in_the_background_has_its_supervisor_and_none_remains_after_it() {
    if !can_run() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (script, to) = (folder.path().join("s.py"), folder.path().join("protocols"));
    fs::write(&script, SOCKETS).unwrap();
    let line = format!("(sleep 0.3; python3 {} > {}) > /dev/null &", script.display(), to.display());
    let output = run(&["setsid", "sh", "-c", &line]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let began = Instant::now();
    while fs::read_to_string(&to).ok().is_none_or(|text| text != MPTCP) || supervisors() > 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}, {}", fs::read_to_string(&to), supervisors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_program_within_another_keeps_its_sockets_and_a_sentence_says_so() {
    if !can_run() {
        return;
    }
    let output = run(&[CROSSLANE, "run", "python3", "-c", SOCKETS]);
    let expected = "another supervisor answers system calls already; python3 runs as it is";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), MPTCP);
}

#[test]
fn sockets_of_another_network_namespace_or_user_stay_as_they_are() {
    if !can_run() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        not_run("only root can become another user");
        return;
    }
    assert_eq!(text(&run(&["unshare", "--net", "python3", "-c", SOCKETS]).stdout), TCP);
    let as_other_user = SOCKETS.replacen("socket as s\n", "os, socket as s\nos.setuid(65534)\n", 1);
    assert_eq!(text(&run(&["python3", "-c", &as_other_user]).stdout), TCP);
}
