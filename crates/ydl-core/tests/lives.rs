//! Lives of jobs, told as text: what happens, and what the core does about it.

mod draft;

mod lives {
    mod script;

    mod after;
    mod attempts;
    mod bereaved;
    mod beside;
    mod deadlines;
    mod elastic;
    mod end;
    mod failure;
    mod fetching;
    mod follow;
    mod gang;
    mod launch;
    mod leaving;
    mod limits;
    mod newcomers;
    mod nodes;
    mod recovery;
    mod rendezvous;
    mod saving;
    mod scaling;
    mod silence;
    mod start;
    mod taken;
    mod told;
}
