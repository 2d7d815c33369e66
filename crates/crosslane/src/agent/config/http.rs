//! The section `[http]`: where the agent serves its page and metrics.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::Config;
use super::checks::Complaint;

/// The section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Address and port. Who reaches it may look at the agent, and change nothing.
    pub listen: Spanned<SocketAddr>,
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    match &config.http {
        Some(http) if http.listen.get_ref().port() == 0 => {
            let cause = format!("the address {} has no port", http.listen.get_ref());
            Err((http.listen.span().start, cause, "give one, as \"127.0.0.1:9470\""))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn the_page_has_an_address_and_a_port() {
        let read = |listen: &str| {
            let text = format!(
                "[[path]]\nname = \"lte\"\nrat = \"lte\"\n[strategy]\nname = \"threshold\"\n[http]\nlisten = \"{listen}\"\n"
            );
            parse(&text).map(|config| config.http.map(|http| http.listen.get_ref().to_string()))
        };
        assert!(read("[::1]:9470").is_ok_and(|listen| listen.as_deref() == Some("[::1]:9470")));
        for (bad, expected) in [("127.0.0.1:0", "has no port"), ("localhost:9470", "invalid socket address")] {
            let fault = read(bad).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert!(fault.line == 7 && fault.cause.contains(expected), "{bad}: line {}, {}", fault.line, fault.cause);
        }
    }
}
