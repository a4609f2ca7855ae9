//! Lives of jobs, told as text: what happens, and what the core does about it.

mod draft;

mod lives {
    mod script;

    mod after;
    mod bereaved;
    mod beside;
    mod deadlines;
    mod elastic;
    mod end;
    mod failure;
    mod follow;
    mod gang;
    mod nodes;
    mod recovery;
    mod scaling;
    mod start;
    mod told;
}
