//! Jobs on real Hadoop daemons that lose masters, nodes and queues.

mod elastic;
mod frameworks;
mod horovod;
mod master;
mod misuse;
mod nodes;
mod tasks;
