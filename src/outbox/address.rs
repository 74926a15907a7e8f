//! Whom we may call.
//!
//! A receiver's URL comes from outside, so it could point at our own insides: the database, a cloud's metadata
//! service. Private, loopback and otherwise special addresses are refused unless a setting allows them, when
//! the URL is registered and again at each connection, since a name may point elsewhere by then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Why a URL is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// Not a URL we can call.
    #[error("must be an absolute https:// or http:// URL without a user and a password")]
    NotCallable,
    /// A special address.
    #[error("points to {0}, which is not a public address (HAMYON_WEBHOOK_ALLOW_PRIVATE allows those)")]
    NotPublic(IpAddr),
}

/// Checks a URL before it is registered.
///
/// # Errors
/// [`AddressRefusal`].
pub fn check_url(text: &str, allow_private: bool) -> Result<reqwest::Url, AddressRefusal> {
    let url: reqwest::Url = text.parse().map_err(|_| AddressRefusal::NotCallable)?;
    let callable = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && text.len() <= 2048;
    if !callable {
        return Err(AddressRefusal::NotCallable);
    }
    check_literal(&url, allow_private)?;
    Ok(url)
}

/// Refuses a URL whose host is itself a special address: such a host is never resolved.
pub(super) fn check_literal(url: &reqwest::Url, allow_private: bool) -> Result<(), AddressRefusal> {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) if !allow_private && !is_public(address) => Err(AddressRefusal::NotPublic(address)),
        _ => Ok(()),
    }
}

/// Whether an address belongs to the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || first == 0
        // Shared by carriers (RFC 6598), IETF protocols (RFC 6890), benchmarking (RFC 2544), reserved (RFC 1112).
        || (first == 100 && (64..128).contains(&second))
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && (second == 18 || second == 19))
        || first >= 240;
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is given out; of it, some carry an IPv4 address or are for documents.
    (0x2000..0x4000).contains(&first)
        && !(first == 0x2001 && second < 0x0200)
        && !(first == 0x2001 && second == 0x0db8)
        && !(first == 0x3fff && second < 0x1000)
        && first != 0x2002
}

/// Resolves names to public addresses only.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicResolver {
    pub(super) allow_private: bool,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.iter().copied().filter(|address| allow_private || is_public(address.ip())).collect();
            if let (true, Some(address)) = (allowed.is_empty(), found.first()) {
                return Err(AddressRefusal::NotPublic(address.ip()).into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}
