//! State of a gateway, and its public interface.

use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::access_log::AccessLog;
use crate::bearer::Bearer;
use crate::connect::{Connect, DirectConnect};
use crate::dispatcher::Dispatcher;
use crate::exchange::Flows;
use crate::metrics::{Gauges, Metrics};
use crate::pool::Pools;
use crate::random::Random;
use crate::rate_limit::RateLimiter;
use crate::retry::RetryBudget;
use crate::route_table::{RateLimit, RouteTable};
use crate::server::{self, ServerLimits};

/// Limits of the intervals of the maintenance.
const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_millis(250);

/// Gateway in front of the replicas of a role. Clones share their state.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<GatewayState>);

/// Settings that the route table does not have.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub limits: ServerLimits,
    /// Tokens that clients need; none for a gateway without authentication.
    pub bearer: Option<Bearer>,
    /// Certificate and key; none for HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    pub access_log: Option<Arc<AccessLog>>,
    /// Way to the replicas.
    pub connect: Arc<dyn Connect>,
}

impl Default for GatewayOptions {
    fn default() -> GatewayOptions {
        GatewayOptions {
            limits: ServerLimits::default(),
            bearer: None,
            tls: None,
            access_log: None,
            connect: Arc::new(DirectConnect),
        }
    }
}

#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) options: GatewayOptions,
    table: RwLock<Arc<RouteTable>>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) pools: Pools,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) flows: Flows,
    budget: Mutex<RetryBudget>,
    limiter: Mutex<RateLimiter>,
    random: Mutex<Random>,
    /// Connections that were switched to another protocol.
    pub(crate) tunnels: Mutex<JoinSet<()>>,
}

impl Gateway {
    pub fn new(table: RouteTable, options: GatewayOptions) -> Gateway {
        let metrics = Arc::<Metrics>::default();
        let dispatcher = Arc::new(Dispatcher::new(metrics.clone()));
        dispatcher.apply(&table);
        let now = Instant::now();
        Gateway(Arc::new(GatewayState {
            pools: Pools::new(options.connect.clone()),
            options,
            table: RwLock::new(Arc::new(table)),
            dispatcher,
            metrics,
            flows: Flows::default(),
            budget: Mutex::new(RetryBudget::new(now)),
            limiter: Mutex::new(RateLimiter::new(now)),
            random: Mutex::new(Random::from_system()),
            tunnels: Mutex::default(),
        }))
    }

    /// Takes over a table, unless it is older than the present one. Returns true if it was taken over.
    pub fn apply(&self, table: RouteTable) -> bool {
        let state = &self.0;
        {
            let mut current = state.table.write().unwrap_or_else(PoisonError::into_inner);
            if table.version < current.version {
                return false;
            }
            *current = Arc::new(table);
            // Under the lock, so that a concurrent call cannot apply an older table last.
            state.dispatcher.apply(&current);
            state.pools.apply(&current);
        }
        true
    }

    /// Returns the version of the present table.
    pub fn route_version(&self) -> u64 {
        self.0.table().version
    }

    /// Returns the number of requests at replicas, and of those that wait for one.
    pub fn load(&self) -> (u64, usize) {
        self.0.dispatcher.load()
    }

    /// Returns the metrics as Prometheus text.
    pub fn metrics(&self) -> String {
        let table = self.0.table();
        let (in_flight, held) = self.load();
        self.0.metrics.render(&Gauges {
            role: &table.role,
            in_flight,
            held,
            replicas: self.0.dispatcher.states(),
            route_version: table.version,
            log_lines_dropped: self.0.options.access_log.as_ref().map_or(0, |log| log.dropped()),
        })
    }

    /// Serves until `stop` completes, then finishes requests for the drain time of the table. Returns the number of
    /// connections that were cut off.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> usize {
        let state = self.0.clone();
        // Ends with the set.
        let mut maintenance = JoinSet::new();
        maintenance.spawn(async move { state.maintain().await });
        server::serve(&self.0, listener, stop).await
    }

    /// Serves `/metrics` over HTTP until `stop` completes.
    pub async fn serve_metrics(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        server::serve_metrics(self, listener, stop).await;
    }
}

impl GatewayState {
    pub(crate) fn table(&self) -> Arc<RouteTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request of a client from its limit, or returns the time until the next one.
    pub(crate) fn take_rate(
        &self,
        client: IpAddr,
        limit: Option<&RateLimit>,
    ) -> Result<(), Duration> {
        let Some(limit) = limit else { return Ok(()) };
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.take(Instant::now(), client, limit)
    }

    /// Ends what makes no progress, closes unused connections, and offers readmitted replicas to waiting requests.
    async fn maintain(&self) {
        loop {
            let timeouts = self.table().service.timeouts;
            self.flows.sweep(Instant::now());
            self.pools.close_idle(timeouts.keep_alive);
            self.dispatcher.serve_queue();
            sleep((timeouts.idle / 4).clamp(TICK_MIN, TICK_MAX)).await;
        }
    }
}
