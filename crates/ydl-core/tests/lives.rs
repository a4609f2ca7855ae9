//! Lives of jobs, told as text: what happens, and what the core does about it.

mod lives {
    mod script;

    mod deadlines;
    mod elastic;
    mod end;
    mod failure;
    mod gang;
    mod nodes;
    mod recovery;
    mod scaling;
    mod start;
}
