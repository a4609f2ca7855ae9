//! The topology of a group: a binary tree, and a ring in the order of ranks.
//!
//! Workers require the ring. The tree has the shape of the original Python tracker, so that floating-point sums have
//! the same results.

use std::collections::BTreeSet;

/// Neighbors of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    parents: Vec<Option<u32>>,
    children: Vec<Vec<u32>>,
}

impl Topology {
    /// Creates the topology of a group.
    pub(crate) fn new(workers: u32) -> Topology {
        // The nodes of a heap in the order of a walk around it. The rank of a node is its position.
        let order = walk(0, workers);
        let mut positions = vec![0; order.len()];
        for (position, number) in order.iter().enumerate() {
            positions[*number as usize] = position as u32;
        }
        let mut parents = vec![None; order.len()];
        let mut children = vec![Vec::new(); order.len()];
        for number in 1..workers {
            let (rank, parent) =
                (positions[number as usize], positions[(number as usize).div_ceil(2) - 1]);
            parents[rank as usize] = Some(parent);
            children[parent as usize].push(rank);
        }
        for ranks in &mut children {
            ranks.sort_unstable();
        }
        Topology { parents, children }
    }

    pub(crate) fn workers(&self) -> u32 {
        self.parents.len() as u32
    }

    /// Returns the parent in the tree, or `None` for the root.
    pub(crate) fn parent(&self, rank: u32) -> Option<u32> {
        self.parents.get(rank as usize).copied().flatten()
    }

    /// Returns the parent and the children in the tree.
    pub(crate) fn tree(&self, rank: u32) -> Vec<u32> {
        let children = self.children.get(rank as usize).into_iter().flatten();
        self.parent(rank).into_iter().chain(children.copied()).collect()
    }

    /// Returns the previous and the next rank in the ring, or `None` for a single worker.
    pub(crate) fn ring(&self, rank: u32) -> Option<(u32, u32)> {
        let workers = self.workers();
        (workers > 1).then(|| ((rank + workers - 1) % workers, (rank + 1) % workers))
    }

    /// Returns all neighbors, in the tree and in the ring.
    pub(crate) fn neighbors(&self, rank: u32) -> BTreeSet<u32> {
        let ring = self.ring(rank).map(|(before, after)| [before, after]);
        self.tree(rank).into_iter().chain(ring.into_iter().flatten()).collect()
    }
}

/// Returns the walk below a node: the node, then the walk below each child, reversed for the last one. Children are in
/// the iteration order of a small Python set.
fn walk(number: u32, workers: u32) -> Vec<u32> {
    if number >= workers {
        return Vec::new();
    }
    let mut children: Vec<u32> = [2, 1]
        .map(|add| number.saturating_mul(2).saturating_add(add))
        .into_iter()
        .filter(|child| *child < workers)
        .collect();
    children.sort_unstable_by_key(|child| child & 7);
    let mut nodes = vec![number];
    for (nth, child) in children.iter().enumerate() {
        let mut below = walk(*child, workers);
        if nth + 1 == children.len() {
            below.reverse();
        }
        nodes.append(&mut below);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_match_the_python_tracker() {
        let parents = |workers: u32| -> Vec<i64> {
            let topology = Topology::new(workers);
            (0..workers).map(|rank| topology.parent(rank).map_or(-1, i64::from)).collect()
        };
        for expected in [
            &[-1][..],
            &[-1, 0],
            &[-1, 0, 0],
            &[-1, 0, 1, 0],
            &[-1, 0, 1, 1, 0],
            &[-1, 0, 1, 1, 5, 0],
            &[-1, 0, 1, 1, 6, 6, 0],
            &[-1, 0, 1, 2, 1, 7, 7, 0],
            &[-1, 0, 1, 2, 2, 1, 8, 8, 0],
            &[-1, 0, 1, 2, 2, 6, 1, 9, 9, 0],
            &[-1, 0, 1, 2, 5, 2, 8, 8, 1, 15, 9, 9, 14, 14, 15, 0],
        ] {
            assert_eq!(parents(expected.len() as u32), expected);
        }
        assert!(parents(0).is_empty());
    }

    #[test]
    fn neighbors_are_mutual() {
        for workers in 1..200 {
            let topology = Topology::new(workers);
            for rank in 0..workers {
                let neighbors = topology.neighbors(rank);
                assert!(!neighbors.contains(&rank) && neighbors.len() <= 5);
                for other in neighbors {
                    assert!(topology.neighbors(other).contains(&rank));
                }
            }
        }
    }
}
