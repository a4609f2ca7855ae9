//! Limits the requests of each client with a token bucket.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::route_table::RateLimit;

/// Maximum number of clients with a bucket of their own.
const CLIENTS_MAX: usize = 1 << 16;

/// Buckets by client address. A client of IPv6 is a network of 64 bits.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    buckets: HashMap<IpAddr, Bucket>,
    /// Shared by all clients that found the table full.
    overflow: Bucket,
    clients_max: usize,
    swept: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths of a request.
    tokens: u64,
    refilled: Instant,
}

impl RateLimiter {
    pub(crate) fn new(now: Instant) -> RateLimiter {
        RateLimiter::with_capacity(now, CLIENTS_MAX)
    }

    fn with_capacity(now: Instant, clients_max: usize) -> RateLimiter {
        RateLimiter {
            buckets: HashMap::new(),
            overflow: Bucket { tokens: u64::MAX, refilled: now },
            clients_max,
            swept: now,
        }
    }

    /// Takes one request of the client, or returns the time until its next one.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        client: IpAddr,
        limit: &RateLimit,
    ) -> Result<(), Duration> {
        let client = network(client);
        let is_full = self.buckets.len() >= self.clients_max;
        if is_full && !self.buckets.contains_key(&client) {
            self.sweep(now, limit);
        }
        let bucket = match self.buckets.len() < self.clients_max {
            true => {
                self.buckets.entry(client).or_insert(Bucket { tokens: u64::MAX, refilled: now })
            }
            false => self.buckets.get_mut(&client).unwrap_or(&mut self.overflow),
        };
        bucket.take(now, limit)
    }

    /// Forgets clients with full buckets. At most once a second, because it looks at all of them.
    fn sweep(&mut self, now: Instant, limit: &RateLimit) {
        if now.saturating_duration_since(self.swept) < Duration::from_secs(1) {
            return;
        }
        self.swept = now;
        self.buckets.retain(|_, bucket| {
            bucket.refill(now, limit);
            bucket.tokens < u64::from(limit.burst) * 1000
        });
    }
}

impl Bucket {
    fn refill(&mut self, now: Instant, limit: &RateLimit) {
        let elapsed = now.saturating_duration_since(self.refilled).as_millis();
        let earned = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let earned = earned.saturating_mul(u64::from(limit.per_second));
        // Without this condition, a refill each millisecond would lose the parts of milliseconds.
        if earned > 0 {
            self.refilled = now;
        }
        self.tokens = self.tokens.saturating_add(earned).min(u64::from(limit.burst) * 1000);
    }

    fn take(&mut self, now: Instant, limit: &RateLimit) -> Result<(), Duration> {
        self.refill(now, limit);
        match self.tokens.checked_sub(1000) {
            Some(rest) => {
                self.tokens = rest;
                Ok(())
            }
            None => {
                let missing = 1000 - self.tokens;
                Err(Duration::from_millis(missing.div_ceil(u64::from(limit.per_second.max(1)))))
            }
        }
    }
}

fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { per_second: 2, burst: 3 };

    fn client(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn taken(limiter: &mut RateLimiter, now: Instant, client: IpAddr) -> usize {
        (0..100).take_while(|_| limiter.take(now, client, &LIMIT).is_ok()).count()
    }

    #[test]
    fn each_client_has_a_burst_and_a_rate() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new(now);
        assert_eq!(taken(&mut limiter, now, client(1)), 3);
        assert_eq!(limiter.take(now, client(1), &LIMIT), Err(Duration::from_millis(500)));
        assert_eq!(taken(&mut limiter, now, client(2)), 3);
        assert_eq!(taken(&mut limiter, now + Duration::from_secs(1), client(1)), 2);
        assert_eq!(taken(&mut limiter, now + Duration::from_secs(99), client(1)), 3);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let now = Instant::now();
        let mut limiter = RateLimiter::new(now);
        assert_eq!(taken(&mut limiter, now, "2001:db8::1".parse().unwrap()), 3);
        assert_eq!(taken(&mut limiter, now, "2001:db8::2".parse().unwrap()), 0);
        assert_eq!(taken(&mut limiter, now, "2001:db8:0:1::2".parse().unwrap()), 3);
        assert_eq!(taken(&mut limiter, now, "::ffff:10.0.0.1".parse().unwrap()), 3);
        assert_eq!(taken(&mut limiter, now, client(1)), 0);
    }

    #[test]
    fn a_full_table_forgets_quiet_clients_and_shares_one_bucket() {
        let now = Instant::now();
        let mut limiter = RateLimiter::with_capacity(now, 2);
        assert_eq!(taken(&mut limiter, now, client(1)), 3);
        assert_eq!(taken(&mut limiter, now, client(2)), 3);
        assert_eq!(taken(&mut limiter, now, client(3)), 3);
        assert_eq!(taken(&mut limiter, now, client(4)), 0);
        assert_eq!(limiter.buckets.len(), 2);
        let later = now + Duration::from_secs(10);
        assert_eq!(taken(&mut limiter, later, client(5)), 3);
        assert_eq!(limiter.buckets.len(), 1);
    }
}
