//! Who is whose neighbour: a binary tree, and a ring in which rank follows rank.
//!
//! Workers insist on the ring; the tree could have any shape, and has the one that the Python tracker of old gives it,
//! so that sums of floating-point numbers come out as they always did.

use std::collections::BTreeSet;

/// The neighbours of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    parents: Vec<Option<u32>>,
    children: Vec<Vec<u32>>,
}

impl Topology {
    /// For so many workers.
    pub fn new(workers: u32) -> Topology {
        // Numbers of a heap, in the order in which a walk around it meets them; ranks are the places in that order.
        let order = ring(0, workers);
        let mut places = vec![0; order.len()];
        for (place, number) in order.iter().enumerate() {
            places[*number as usize] = place as u32;
        }
        let mut parents = vec![None; order.len()];
        let mut children = vec![Vec::new(); order.len()];
        for number in 1..workers {
            let (rank, parent) =
                (places[number as usize], places[(number as usize).div_ceil(2) - 1]);
            parents[rank as usize] = Some(parent);
            children[parent as usize].push(rank);
        }
        for of in &mut children {
            of.sort_unstable();
        }
        Topology { parents, children }
    }

    pub fn workers(&self) -> u32 {
        self.parents.len() as u32
    }

    /// Above in the tree; the root has none.
    pub fn parent(&self, rank: u32) -> Option<u32> {
        self.parents.get(rank as usize).copied().flatten()
    }

    /// Above and below in the tree.
    pub fn tree(&self, rank: u32) -> Vec<u32> {
        let children = self.children.get(rank as usize).into_iter().flatten();
        self.parent(rank).into_iter().chain(children.copied()).collect()
    }

    /// Before and after in the ring; who is alone has neither.
    pub fn ring(&self, rank: u32) -> Option<(u32, u32)> {
        let workers = self.workers();
        (workers > 1).then(|| ((rank + workers - 1) % workers, (rank + 1) % workers))
    }

    /// All of them.
    pub fn neighbours(&self, rank: u32) -> BTreeSet<u32> {
        let ring = self.ring(rank).map(|(before, after)| [before, after]);
        self.tree(rank).into_iter().chain(ring.into_iter().flatten()).collect()
    }
}

/// The walk below a number: itself, then what is below each child, that below the last one backwards. Children come in
/// the order in which Python goes through a small set.
fn ring(number: u32, workers: u32) -> Vec<u32> {
    if number >= workers {
        return Vec::new();
    }
    let mut children: Vec<u32> = [2, 1]
        .map(|add| number.saturating_mul(2).saturating_add(add))
        .into_iter()
        .filter(|child| *child < workers)
        .collect();
    children.sort_unstable_by_key(|child| child & 7);
    let mut walk = vec![number];
    for (nth, child) in children.iter().enumerate() {
        let mut below = ring(*child, workers);
        if nth + 1 == children.len() {
            below.reverse();
        }
        walk.append(&mut below);
    }
    walk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_those_of_the_python_tracker() {
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
    fn who_has_a_neighbour_is_its_neighbour() {
        for workers in 1..200 {
            let topology = Topology::new(workers);
            for rank in 0..workers {
                let neighbours = topology.neighbours(rank);
                assert!(!neighbours.contains(&rank) && neighbours.len() <= 5);
                for other in neighbours {
                    assert!(topology.neighbours(other).contains(&rank));
                }
            }
        }
    }
}
