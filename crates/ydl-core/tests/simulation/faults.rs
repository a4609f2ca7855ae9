//! What a seed picks: the job, its policies, the cluster, and which faults there are.

use super::random::Random;
use std::collections::BTreeMap;
use ydl_core::{
    Draft, Framework, JobSpec, RoleName, Span,
    spec::{
        Backoff, Blame, Command, Completion, Deadlines, Environment, Gang, Input, InputForm,
        MemoryGrowth, Output, PortRange, Range, Reform, Resources, Restart, RoleSpec, Scope,
    },
};

/// Everything about a schedule that is settled before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    pub spec: JobSpec,
    pub faults: Faults,
    /// How many containers each node takes.
    pub nodes: Vec<u32>,
    /// Until when, in milliseconds, faults happen. 0: never.
    pub hostile: u64,
    /// How long a node is unheard before the cluster gives it up.
    pub expiry: u64,
    /// Programs run until long after the faults have ended.
    pub patient: bool,
    /// Programs of elastic roles run on when the others have long ended.
    pub lasting: bool,
    /// Programs of elastic roles fail when one of their round dies with its container.
    pub bereaved: bool,
}

/// Which faults there are. Those that come in messages happen to each message with some chance; the others strike
/// at random moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    // Between master and cluster.
    pub beats_lost: bool,
    pub beats_late: bool,
    pub surplus: bool,
    pub scarcity: bool,
    pub launches_fail: bool,
    pub launches_vanish: bool,
    // Between master and agents.
    pub requests_lost: bool,
    pub replies_lost: bool,
    pub requests_late: bool,
    // Agents and programs.
    pub hung: bool,
    pub crashes: bool,
    pub unready: bool,
    pub stuck: bool,
    pub stubborn: bool,
    pub fails: bool,
    pub not_started: bool,
    pub unsaved: bool,
    // The cluster.
    pub memory: bool,
    pub preempts: bool,
    pub warns: bool,
    pub nodes_die: bool,
    pub partitions: bool,
    // People and the master itself.
    pub scales: bool,
    pub kills: bool,
    pub master_dies: bool,
    pub clock_jumps: bool,
}

impl Faults {
    fn some(random: &mut Random) -> Faults {
        let mut half = || random.percent(50);
        let mut faults = Faults {
            beats_lost: half(),
            beats_late: half(),
            surplus: half(),
            scarcity: half(),
            launches_fail: half(),
            launches_vanish: half(),
            requests_lost: half(),
            replies_lost: half(),
            requests_late: half(),
            hung: half(),
            crashes: half(),
            unready: half(),
            stuck: half(),
            stubborn: half(),
            fails: half(),
            not_started: half(),
            unsaved: half(),
            memory: half(),
            preempts: half(),
            warns: half(),
            nodes_die: half(),
            partitions: half(),
            scales: half(),
            kills: half() && half() && half(),
            master_dies: half(),
            clock_jumps: half(),
        };
        // An agent that hangs cannot stop its program when it is cut off; the node must be there to do it.
        if half() {
            faults.partitions = false;
        } else {
            faults.hung = false;
            faults.stuck = false;
        }
        // Sometimes only what is nobody's fault: then no job may fail for it.
        if half() && half() {
            faults.forget_the_counted();
        }
        faults
    }

    fn forget_the_counted(&mut self) {
        self.hung = false;
        self.crashes = false;
        self.unready = false;
        self.stuck = false;
        self.fails = false;
        self.not_started = false;
        self.unsaved = false;
        self.memory = false;
        self.partitions = false;
        self.requests_lost = false;
        self.replies_lost = false;
        self.clock_jumps = false;
        self.beats_lost = false;
        self.beats_late = false;
        self.requests_late = false;
        self.launches_fail = false;
        self.launches_vanish = false;
        self.nodes_die = false;
    }

    /// Whether everything that can end an attempt is nobody's fault.
    pub fn blameless(&self) -> bool {
        let counted = self.hung
            || self.crashes
            || self.unready
            || self.stuck
            || self.fails
            || self.not_started
            || self.unsaved
            || self.memory
            || self.partitions
            || self.requests_lost
            || self.replies_lost
            || self.clock_jumps
            || self.beats_lost
            || self.beats_late
            || self.requests_late
            || self.launches_fail
            || self.launches_vanish
            || self.nodes_die;
        !counted
    }
}

impl Plan {
    /// What `apart` draws changes nothing else, nor does what `third` draws.
    pub fn new(random: &mut Random, apart: &mut Random, third: &mut Random) -> Plan {
        let calm = random.percent(8);
        let bereaved = apart.percent(50);
        let spec = elastic(spec(random, calm), bereaved, apart);
        let changes = spec.roles.iter().any(|role| role.elastic.is_some());
        let tasks = spec.tasks();
        let mut faults = if calm {
            Faults::default()
        } else {
            Faults::some(random)
        };
        let told = changes && spec.gang.reform == Reform::Told;
        if told && !calm && apart.percent(50) {
            // Those who are told lose each other more often: they have more to get wrong.
            faults.scarcity = true;
            faults.scales = true;
            faults.preempts = true;
            faults.unsaved = true;
        }
        let mut patient = changes && !calm && apart.percent(50);
        if changes && !calm && bereaved && apart.percent(40) {
            // Only the cluster takes, again and again: no job may fail for that.
            faults.forget_the_counted();
            faults.preempts = true;
            patient = true;
        }
        let nodes = random.from(1, 5);
        // Sometimes there is not room for everybody, and sometimes never will be.
        let room = if calm || random.percent(75) {
            tasks + 8
        } else {
            random.from(1, tasks)
        };
        let slots = room.div_ceil(nodes);
        Plan {
            spec: beside(ordered(spec, apart), third),
            faults,
            nodes: (0..nodes).map(|_| slots as u32).collect(),
            hostile: if calm {
                0
            } else {
                random.from(10, 120) * 1_000
            },
            expiry: random.from(4, 25) * 1_000,
            patient,
            lasting: apart.percent(50),
            bereaved,
        }
    }
}

fn seconds(random: &mut Random, low: u64, high: u64) -> Span {
    Span::seconds(random.from(low, high))
}

fn spec(random: &mut Random, calm: bool) -> JobSpec {
    let together = random.percent(50);
    let count = random.from(1, 3) as usize;
    let scopes = [Scope::Task, Scope::Role, Scope::Job];
    let shared = *random.pick(&scopes);
    let mixed = random.percent(45);
    let large = random.percent(2);
    let mut roles = Vec::new();
    for (at, name) in ["worker", "server", "chief"].iter().enumerate().take(count) {
        let scope = if mixed { *random.pick(&scopes) } else { shared };
        let most = if large { 15 } else { 4 - count as u64 / 2 };
        let instances = random.from(1, most) as u32;
        let completion = match (at, random.below(10)) {
            (0, 0..=6) | (2, 0..=3) => Completion::All,
            (0, 7) | (_, 9) => Completion::Any,
            (0, 8) | (2, 4..=6) => Completion::Decides,
            (1, 8) => Completion::All,
            (1, 6..=7) => Completion::Follows,
            _ => Completion::Service,
        };
        roles.push(role(random, name, instances, scope, completion));
    }
    let deadlines = Deadlines {
        allocation: seconds(random, 40, 90),
        launch: seconds(random, 6, 15),
        join: seconds(random, 6, 15),
        fetch: Span::seconds(10),
        start: seconds(random, 6, 15),
        run: (!calm && random.percent(10)).then(|| seconds(random, 60, 300)),
        follow: Span::seconds(30),
        silence: seconds(random, 5, 20),
        grace: seconds(random, 1, 4),
        stop: seconds(random, 3, 6),
        save: seconds(random, 4, 10),
    };
    let outputs = random.percent(40).then(|| Output::new("model/", "/out"));
    // Some agents are late because their data is; that some jobs have any follows from what was drawn already.
    let inputs = outputs.as_ref().map(|_| Input {
        name: "data".into(),
        source: "/data".into(),
        form: InputForm::Copy,
        roles: Vec::new(),
        allow_empty: false,
    });
    let draft = Draft {
        name: "simulated".into(),
        framework: Framework::None,
        environment: Environment::System,
        files: Vec::new(),
        inputs: inputs.into_iter().collect(),
        cluster_flags: false,
        disk_mib: None,
        roles,
        outputs: outputs.into_iter().collect(),
        env: BTreeMap::new(),
        gang: Gang {
            together,
            hold: seconds(random, 8, 20),
            retries: random.below(3) as u32,
            backoff: Backoff {
                first: Span::seconds(2),
                most: Span::seconds(10),
            },
            settle: Span::seconds(2),
            reform: Default::default(),
        },
        deadlines,
        blame: Blame {
            failures: random.from(1, 3) as u32,
            forgive_after: seconds(random, 5, 60),
            at_most: 2,
        },
        ports: PortRange::default(),
        on_cluster: Default::default(),
    };
    JobSpec::new(draft).expect("a simulated job is valid")
}

/// Some roles whose tasks start on their own begin after others.
fn ordered(spec: JobSpec, random: &mut Random) -> JobSpec {
    let mut draft = Draft::from(spec);
    if draft.gang.together || draft.roles.len() < 2 || random.percent(60) {
        return JobSpec::new(draft).expect("a simulated job is valid");
    }
    let mut names: Vec<_> = draft.roles.iter().map(|role| role.name.clone()).collect();
    if random.percent(50) {
        names.reverse();
    }
    for role in &mut draft.roles {
        if role.restart.scope == Scope::Job {
            role.restart.scope = Scope::Role;
        }
        let before = names.iter().take_while(|name| **name != role.name);
        role.after = before.filter(|_| random.percent(70)).cloned().collect();
    }
    JobSpec::new(draft).expect("a simulated job is valid")
}

/// Some jobs have what stands beside them. There is not always room for it.
fn beside(spec: JobSpec, random: &mut Random) -> JobSpec {
    let mut draft = Draft::from(spec);
    if random.percent(25) {
        let scopes = [Scope::Task, Scope::Role, Scope::Job];
        let ordered = draft.roles.iter().any(|role| !role.after.is_empty());
        let scope = match ordered {
            true => Scope::Task,
            false => *random.pick(&scopes),
        };
        let instances = random.from(1, 2) as u32;
        let board = role(random, "board", instances, scope, Completion::Beside);
        draft.roles.push(RoleSpec {
            tolerate: 0,
            ..board
        });
    }
    JobSpec::new(draft).expect("a simulated job is valid")
}

/// Some gangs have roles whose tasks come and go.
fn elastic(spec: JobSpec, bereaved: bool, random: &mut Random) -> JobSpec {
    let mut draft = Draft::from(spec);
    draft.gang.settle = match random.percent(40) {
        true => seconds(random, 10, 30),
        false => seconds(random, 1, 6),
    };
    if !draft.gang.together || random.percent(40) {
        return JobSpec::new(draft).expect("a simulated job is valid");
    }
    for role in &mut draft.roles {
        // More of those who end beside an elastic role, and sooner.
        if role.completion == Completion::Service && random.percent(40) {
            role.completion = Completion::All;
            role.tolerate = 0;
            continue;
        }
        let done = matches!(role.completion, Completion::All | Completion::Decides);
        if !done || role.tolerate > 0 || random.percent(30) {
            continue;
        }
        if role.restart.scope == Scope::Task {
            role.restart.scope = Scope::Job;
        }
        if bereaved {
            // One failure at a time is counted, or doubted, until its cause is known.
            role.restart.limit = random.below(2) as u32;
            role.restart.window = None;
        }
        role.instances += random.below(3) as u32;
        role.elastic = Some(Range {
            min: random.from(1, u64::from(role.instances)) as u32,
            max: role.instances + random.below(3) as u32,
        });
    }
    // Two of them begin their rounds together.
    let elastic = |role: &&mut RoleSpec| role.elastic.is_some();
    if draft.roles.iter_mut().filter(elastic).count() > 1 {
        for role in draft.roles.iter_mut().filter(elastic) {
            role.restart.scope = Scope::Job;
        }
    }
    if random.percent(40) {
        draft.gang.reform = Reform::Told;
        if random.percent(50) {
            draft.outputs = vec![Output::new("model/", "/out")];
        }
        for role in &mut draft.roles {
            if let Some(range) = role.elastic.as_mut().filter(|_| random.percent(50)) {
                range.min = (role.instances - 1).max(1);
            }
        }
    }
    JobSpec::new(draft).expect("a simulated job is valid")
}

fn role(
    random: &mut Random,
    name: &str,
    instances: u32,
    scope: Scope,
    completion: Completion,
) -> RoleSpec {
    let tolerates = random.percent(15);
    RoleSpec {
        name: RoleName::from(name),
        instances,
        processes: 1,
        elastic: None,
        resources: Resources {
            memory_mib: 1_000,
            vcores: 1,
            ..Resources::default()
        },
        command: Command::Program(vec!["program".into()]),
        environment: None,
        env: BTreeMap::new(),
        restart: Restart {
            scope,
            limit: random.below(5) as u32,
            backoff: Backoff {
                first: Span(random.below(3) * 500),
                most: Span::seconds(4),
            },
            window: random.percent(30).then(|| seconds(random, 10, 40)),
        },
        completion,
        tolerate: if tolerates {
            random.below(u64::from(instances)) as u32
        } else {
            0
        },
        memory_growth: random.percent(30).then_some(MemoryGrowth {
            percent: 50,
            most_mib: 4_000,
        }),
        ports: Vec::new(),
        placement: Default::default(),
        after: Vec::new(),
    }
}
