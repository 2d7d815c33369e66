//! Third-party programs under `mptcpize run`: curl with Python's web server, and iperf3.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crosslane::clock::monotonic_ns;
use sha2::{Digest, Sha256};

use super::plan::Plan;
use super::topology::World;

/// Size of the file that curl fetches; at its rate limit the transfer lasts until the hardships end.
const FILE_BYTES: usize = 1_500_000;
const WEB_PORT: &str = "5080";
const IPERF_PORT: &str = "5201";

/// The third-party programs that were started.
pub struct ThirdParty {
    servers: Vec<Child>,
    clients: Vec<(String, Child)>,
    fetched: std::path::PathBuf,
    expected: Vec<u8>,
    excused: bool,
}

/// Required programs that are not installed.
pub fn missing() -> Vec<&'static str> {
    let is_installed = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    ["mptcpize", "curl", "python3", "iperf3"].into_iter().filter(|name| !is_installed(name)).collect()
}

impl ThirdParty {
    /// Starts the programs if the plan includes them and all are installed.
    pub fn start(plan: &Plan, world: &World, folder: &Path) -> ThirdParty {
        let fetched = folder.join("fetched");
        let excused = plan.hardships.iter().any(|hardship| matches!(hardship.kind.name(), "strip" | "kernel-manager"));
        let mut others =
            ThirdParty { servers: Vec::new(), clients: Vec::new(), fetched, expected: Vec::new(), excused };
        if !plan.others || !missing().is_empty() {
            return others;
        }
        let web = folder.join("web");
        fs::create_dir_all(&web).unwrap();
        let content: Vec<u8> = (0..FILE_BYTES as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        others.expected = Sha256::digest(&content).to_vec();
        fs::write(web.join("file"), content).unwrap();
        let (server, address) = (&world.server, world.server_address().to_string());
        let mut python = mptcpize_run("python3");
        python.args(["-m", "http.server", WEB_PORT, "--directory"]).arg(&web);
        others.servers.push(server.spawn(&mut python).unwrap());
        let mut iperf = mptcpize_run("iperf3");
        iperf.args(["-s", "-p", IPERF_PORT]);
        others.servers.push(server.spawn(&mut iperf).unwrap());
        let mut curl = mptcpize_run("curl");
        let url = format!("http://{address}:{WEB_PORT}/file");
        curl.args(["--silent", "--retry", "5", "--retry-connrefused", "--retry-delay", "1", "--limit-rate", "200k"]);
        curl.arg("--output").arg(&others.fetched).arg(url);
        others.clients.push(("curl".into(), world.vehicle.spawn(&mut curl).unwrap()));
        let mut iperf = Command::new("sh");
        let run = format!("sleep 1; exec mptcpize run iperf3 -c {address} -p {IPERF_PORT} -t 6 -b 2M -R");
        iperf.args(["-c", &run]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        others.clients.push(("iperf3".into(), world.vehicle.spawn(&mut iperf).unwrap()));
        others
    }

    /// Waits for the clients until the deadline; returns for each what it did wrong. A client
    /// that reports its failure has done nothing wrong.
    pub fn finish(&mut self, origin_ns: u64, deadline_ms: u64) -> Vec<(String, Option<String>)> {
        let mut results = Vec::new();
        for (name, child) in &mut self.clients {
            let status = loop {
                match child.try_wait().unwrap() {
                    Some(status) => break Some(status),
                    None if monotonic_ns() > origin_ns + deadline_ms * 1_000_000 => break None,
                    None => std::thread::sleep(std::time::Duration::from_millis(20)),
                }
            };
            let wrong = match status {
                None => (!self.excused).then(|| "it hung".to_owned()),
                Some(status) if status.success() && name == "curl" => {
                    let fetched = fs::read(&self.fetched).unwrap_or_default();
                    let right = Sha256::digest(&fetched)[..] == self.expected[..];
                    (!right).then(|| format!("it reported success, but its {} bytes are wrong", fetched.len()))
                }
                Some(_) => None,
            };
            results.push((name.clone(), wrong));
            drop(child.kill());
            drop(child.wait());
        }
        for server in &mut self.servers {
            drop(server.kill());
            drop(server.wait());
        }
        results
    }
}

fn mptcpize_run(program: &str) -> Command {
    let mut command = Command::new("mptcpize");
    command.args(["run", program]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
