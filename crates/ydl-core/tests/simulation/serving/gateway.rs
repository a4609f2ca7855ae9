//! Gateways: each sends requests by the routes that it has, which may be old.

use super::super::world::{Happening, World};
use std::collections::BTreeMap;
use ydl_core::{
    ContainerId, Event,
    serve::{Route, RouteState, RouteTable},
};

#[derive(Default)]
pub struct Gateways {
    all: Vec<Gateway>,
    /// Versions that the master has heard of.
    versions: BTreeMap<usize, u64>,
}

#[derive(Default)]
struct Gateway {
    /// It has routes and sends requests.
    alive: bool,
    life: u64,
    routes: RouteTable,
    in_flight: BTreeMap<usize, u32>,
}

impl Gateways {
    pub fn add(&mut self) {
        self.all.push(Gateway::default());
    }

    pub fn dies(&mut self, gateway: usize) {
        let life = self.all[gateway].life + 1;
        self.all[gateway] = Gateway { life, ..Gateway::default() };
    }

    pub fn master_dies(&mut self) {
        self.versions.clear();
    }

    /// A live gateway that still sends requests to this container.
    pub fn sends_to(&self, container: &ContainerId) -> Option<usize> {
        let sends = |gateway: &Gateway| {
            let mut routes = gateway.routes.replicas.iter();
            gateway.alive
                && routes.any(|it| it.container == *container && it.state == RouteState::Serving)
        };
        self.all.iter().position(sends)
    }

    fn requests_at(&self, at: usize) -> u32 {
        self.all.iter().filter_map(|it| it.in_flight.get(&at)).sum()
    }

    /// Version that all live gateways have, as far as the master knows.
    fn version(&self) -> u64 {
        let live = self.all.iter().enumerate().filter(|(_, it)| it.alive);
        let known = live.map(|(at, _)| self.versions.get(&at).copied().unwrap_or(0));
        known.min().unwrap_or(u64::MAX)
    }
}

impl World {
    pub fn gateway_returns(&mut self, gateway: usize) {
        if self.gateways.all[gateway].alive {
            return;
        }
        // It is not live before it has routes.
        let life = self.gateways.all[gateway].life;
        self.after(50, Happening::GatewayTurn { gateway, life });
    }

    /// A gateway says which routes it has, gets newer ones, and sends a request.
    pub fn gateway_turn(&mut self, gateway: usize, life: u64) {
        if self.checks.finished_at.is_some() || self.gateways.all[gateway].life != life {
            return;
        }
        let wait = self.random.from(100, 1_200);
        self.after(wait, Happening::GatewayTurn { gateway, life });
        let lost = self.faults().replies_lost;
        let lost = self.struck(lost, 25);
        if let Some(job) = self.shell.job.as_ref().filter(|_| !lost) {
            let it = &mut self.gateways.all[gateway];
            let routes = job.routes().clone();
            // Routes of the same version are taken for the same.
            if !it.alive || it.routes.version != routes.version {
                it.routes = routes;
            }
            it.alive = true;
            let late = self.random.percent(50);
            if !late {
                let version = self.gateways.all[gateway].routes.version;
                self.gateways.versions.insert(gateway, version);
            }
        }
        self.send_request(gateway);
        self.say_drained();
    }

    fn send_request(&mut self, gateway: usize) {
        let it = &self.gateways.all[gateway];
        let gets = |route: &&Route| route.state == RouteState::Serving && route.weight > 0;
        let targets = it.routes.replicas.iter().filter(gets);
        let targets: Vec<usize> =
            targets.map(|it| super::super::cluster::index(&it.container)).collect();
        if !it.alive || targets.is_empty() {
            return;
        }
        let at = *self.random.pick(&targets);
        let takes = match self.random.percent(5) {
            true => 60_000,
            false => self.random.from(20, 2_000),
        };
        let it = &mut self.gateways.all[gateway];
        *it.in_flight.entry(at).or_default() += 1;
        let life = it.life;
        self.after(takes, Happening::RequestEnds { gateway, life, at });
    }

    pub fn request_ends(&mut self, gateway: usize, life: u64, at: usize) {
        let it = &mut self.gateways.all[gateway];
        if it.life == life
            && let Some(count) = it.in_flight.get_mut(&at)
        {
            *count -= 1;
        }
        self.say_drained();
    }

    /// The master hears from agents which replicas have no requests.
    fn say_drained(&mut self) {
        let Some(job) = &self.shell.job else {
            return;
        };
        let drains = job.routes().replicas.iter().filter(|it| it.state == RouteState::Draining);
        let drains: Vec<ContainerId> = drains.map(|it| it.container.clone()).collect();
        for container in drains {
            let at = super::super::cluster::index(&container);
            if self.gateways.requests_at(at) == 0 && self.random.percent(50) {
                let version = self.gateways.version();
                let user = self.gateways.sends_to(&container);
                self.checks.service.still_used = user.map(|_| container.clone());
                self.handle(Event::Drained { container, version });
                self.checks.service.still_used = None;
            }
        }
    }
}
