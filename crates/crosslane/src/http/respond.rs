//! Requests and responses: which there are, and from whom they are accepted.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::metrics;
use super::replay::Replay;
use super::views::Views;
use crate::error::Error;

const HTML: (&str, &str) = ("text/html; charset=utf-8", include_str!("page/page.html"));
const CSS: (&str, &str) = ("text/css; charset=utf-8", include_str!("page/page.css"));
const JS: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/page.js"));

/// The page of a recorded run is the same with one more script, which comes first.
const REPLAY_JS: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page/replay.js"));
const OWN_SCRIPT: &str = "<script src=\"/page.js\" defer></script>";
const REPLAY_SCRIPT: &str = "<script src=\"/replay.js\" defer></script>\n";

/// What the page shows.
pub(super) enum Source {
    /// A running agent.
    Agent(Views),
    /// A recorded run.
    Run(Replay),
}

/// With every response: a page runs only its own script, nothing is stored, and no other site may use it.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Content with its type, or an error.
type Content = Result<(&'static str, Bytes), (StatusCode, Error)>;

/// The response to a request that arrived at a local address.
pub(super) async fn respond<B>(source: &Source, local: IpAddr, request: &Request<B>) -> Response<Full<Bytes>> {
    let (status, (kind, body)) = match content(source, local, request).await {
        Ok(content) => (StatusCode::OK, content),
        Err((status, fault)) => (status, ("text/plain; charset=utf-8", format!("{fault}\n").into())),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

async fn content<B>(source: &Source, local: IpAddr, request: &Request<B>) -> Content {
    let rejected = |status, cause: String, remedy: &str| rejection(request, status, cause, remedy);
    if !is_addressed(request, local) {
        let remedy = "request the agent's address or localhost";
        return rejected(
            StatusCode::MISDIRECTED_REQUEST,
            "the host is neither this agent's nor localhost".into(),
            remedy,
        );
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let cause = format!("{} is no method that only reads", request.method());
        return rejected(StatusCode::METHOD_NOT_ALLOWED, cause, "use GET");
    }
    match (request.uri().path(), source) {
        ("/", Source::Agent(_)) => Ok(fixed(HTML)),
        ("/", Source::Run(_)) => Ok((HTML.0, HTML.1.replace(OWN_SCRIPT, &[REPLAY_SCRIPT, OWN_SCRIPT].concat()).into())),
        ("/page.css", _) => Ok(fixed(CSS)),
        ("/page.js", _) => Ok(fixed(JS)),
        ("/replay.js", Source::Run(_)) => Ok(fixed(REPLAY_JS)),
        (path, Source::Run(replay)) => match replay.answer(path, request.uri().query().unwrap_or_default()) {
            Some(answer) => answer.map(|value| json(&value)).map_err(|fault| (StatusCode::NOT_FOUND, fault)),
            None => rejected(StatusCode::NOT_FOUND, "there is no such page".into(), "request /"),
        },
        (path, Source::Agent(views)) => of_agent(views, path, request).await,
    }
}

/// A view of a running agent.
async fn of_agent<B>(views: &Views, path: &str, request: &Request<B>) -> Content {
    let rejected = |status, cause: String, remedy: &str| rejection(request, status, cause, remedy);
    let found = match path {
        "/metrics" => views.status().await.map(|status| (metrics::TYPE, metrics::encode(status).into())),
        "/api/state" => views.status().await.map(|status| json(&*status)),
        "/api/signals" => views.signals().await.map(|signals| json(&signals)),
        "/api/connections" => {
            let after = request.uri().query().map(|query| query.strip_prefix("after=").unwrap_or_default().parse());
            let Ok(after) = after.transpose() else {
                let cause = format!("{:?} is no token of a connection", request.uri().query().unwrap_or_default());
                return rejected(StatusCode::BAD_REQUEST, cause, "use after=TOKEN, or nothing");
            };
            views.connections(after).await.map(|page| json(&page))
        }
        _ => return rejected(StatusCode::NOT_FOUND, "there is no such page".into(), "request /"),
    };
    match found {
        Some(content) => Ok(content),
        None => rejected(StatusCode::SERVICE_UNAVAILABLE, "the agent does not answer".into(), "repeat it later"),
    }
}

fn rejection<B>(request: &Request<B>, status: StatusCode, cause: String, remedy: &str) -> Content {
    let attempt = format!("requesting {} over HTTP", request.uri().path());
    Err((status, Error::usage(attempt, cause, remedy)))
}

fn fixed((kind, text): (&'static str, &'static str)) -> (&'static str, Bytes) {
    (kind, Bytes::from_static(text.as_bytes()))
}

fn json(view: &impl Serialize) -> (&'static str, Bytes) {
    ("application/json", serde_json::to_vec(view).unwrap_or_default().into())
}

/// Whether a request names this machine: by localhost, or by the address at which it arrived. The page of another site
/// can reach the agent by a name that resolves to this address (DNS rebinding), but not under one of these. The port may
/// be another one, as of `ssh -L`.
fn is_addressed<B>(request: &Request<B>, local: IpAddr) -> bool {
    let names: Vec<&[u8]> = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes).collect();
    let [name] = names[..] else { return false };
    let Ok(named) = Authority::try_from(name) else { return false };
    let host = named.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_local =
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|one| one.to_canonical() == local.to_canonical());
    // The request line can name a host, too.
    is_local && request.uri().authority().is_none_or(|authority| authority.host() == host)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn status(method: &str, target: &str, hosts: &[&str], local: &str) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for host in hosts {
            request = request.header("host", *host);
        }
        let request = request.body(()).unwrap();
        let source = Source::Agent(Views::new(mpsc::channel(1).0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(respond(&source, local.parse().unwrap(), &request)).status().as_u16()
    }

    #[test]
    fn only_a_host_of_this_machine_is_answered() {
        let from = |hosts: &[&str]| status("GET", "/", hosts, "127.0.0.1");
        for good in ["127.0.0.1:9470", "127.0.0.1", "localhost:8080", "LocalHost"] {
            assert_eq!(from(&[good]), 200, "{good}");
        }
        for bad in ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::1]", "a b"]
        {
            assert_eq!(from(&[bad]), 421, "{bad}");
        }
        assert_eq!((from(&[]), from(&["localhost", "evil.example"])), (421, 421));
        assert_eq!(status("GET", "http://evil.example/", &["localhost"], "127.0.0.1"), 421);
        assert_eq!(status("GET", "/", &["[::1]:9470"], "::1"), 200);
        assert_eq!(status("GET", "/", &["10.0.0.1"], "::ffff:10.0.0.1"), 200);
    }

    #[test]
    fn no_method_but_get_and_head_is_answered() {
        for (method, expected) in [("GET", 200), ("HEAD", 200), ("POST", 405), ("DELETE", 405), ("OPTIONS", 405)] {
            assert_eq!(status(method, "/", &["localhost"], "127.0.0.1"), expected, "{method}");
        }
    }

    #[test]
    fn an_agent_that_is_gone_and_a_page_that_is_not_are_distinguished() {
        for (target, expected) in [
            ("/api/state", 503),
            ("/metrics", 503),
            ("/api/connections?after=x", 400),
            ("/x", 404),
            ("/../page.js", 404),
        ] {
            assert_eq!(status("GET", target, &["localhost"], "127.0.0.1"), expected, "{target}");
        }
    }

    #[test]
    fn the_page_of_a_run_has_one_more_script() {
        assert_eq!(HTML.1.matches(OWN_SCRIPT).count(), 1);
    }

    #[test]
    fn a_first_view_is_small() {
        let bytes: usize = [HTML, CSS, JS, REPLAY_JS].iter().map(|(_, text)| text.len()).sum();
        assert!(bytes < 60_000, "{bytes} bytes, without the state and 64 connections, which take less than 100 kB");
    }
}
