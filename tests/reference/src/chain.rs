//! A five-state problem with exact solutions, to see that an agent learns what it should.
//!
//! States 0 to 4 in a row. Direction `short` goes one down, `long` one up, `flat` and `hold` stay; at an end a move beyond it stays. The
//! other branches do nothing. Arriving at (or staying in) state s pays `arrival_reward[s]`. Nothing ends. The behaviour chooses every
//! branch uniformly.

use crate::config::{BRANCH_SIZES, direction};
use crate::matrix::Matrix;

/// States.
pub const N_STATES: usize = 5;
/// Actions of the direction branch.
pub const N_DIRECTIONS: usize = BRANCH_SIZES[0];

/// The problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain {
    /// Reward of the state that a step ends in.
    pub arrival_reward: [f64; N_STATES],
    /// Discount of one step.
    pub gamma: f64,
}

impl Default for Chain {
    /// A small reward near the low end, a large one at the high end, a loss between: the best way depends on where one starts. Values
    /// stay within 0.9 / (1 - 0.9) = 9, inside the atoms' bounds of 10.
    fn default() -> Self {
        Self { arrival_reward: [0.4, 0.1, -0.3, 0.0, 0.9], gamma: 0.9 }
    }
}

/// Q of every state and direction.
pub type Values = [[f64; N_DIRECTIONS]; N_STATES];

impl Chain {
    /// Where a direction leads.
    pub fn next(state: usize, action: usize) -> usize {
        match action {
            direction::SHORT => state.saturating_sub(1),
            direction::LONG => (state + 1).min(N_STATES - 1),
            _ => state,
        }
    }

    /// Reward of a direction.
    pub fn reward(&self, state: usize, action: usize) -> f64 {
        self.arrival_reward[Self::next(state, action)]
    }

    /// Q* = r + gamma max Q*(s'): what double DQN with n = 1 converges to.
    pub fn optimal(&self) -> Values {
        self.fixed_point(1)
    }

    /// Fixed point of uncorrected n-step targets under the uniform behaviour:
    /// Q(s, a) = E[r_0 + .. + gamma^(n-1) r_(n-1) + gamma^n max_a' Q(s_n, a')], the first action a, the later ones uniform.
    ///
    /// Solved exactly by policy iteration: for a given greedy policy the equation is linear in Q. n >= 1.
    pub fn fixed_point(&self, n: u32) -> Values {
        assert!(n >= 1, "at least one step");
        let (rewards, reach) = self.n_step(n);
        let mut greedy = [0; N_STATES];
        loop {
            // v = Q(s, greedy(s)) solves v(s) = R(s, g) + gamma^n sum_s' P(s' | s, g) v(s').
            let discount = self.gamma.powi(n as i32);
            let row = |s: usize| s * N_DIRECTIONS + greedy[s];
            let system = Matrix::from_fn(N_STATES, N_STATES, |s, to| {
                f64::from(u8::from(s == to)) - discount * reach[(row(s), to)]
            });
            let v = solve(system, (0..N_STATES).map(|s| rewards[row(s)]).collect());
            let q: Values = std::array::from_fn(|s| {
                std::array::from_fn(|a| {
                    let at = s * N_DIRECTIONS + a;
                    rewards[at] + discount * (0..N_STATES).map(|to| reach[(at, to)] * v[to]).sum::<f64>()
                })
            });
            let improved = std::array::from_fn(|s| {
                let best = crate::activation::argmax(&q[s]);
                // Keeps the action among equals, so that ties cannot make the loop go on for ever.
                if q[s][best] > q[s][greedy[s]] + 1e-12 { best } else { greedy[s] }
            });
            if improved == greedy {
                return q;
            }
            greedy = improved;
        }
    }

    /// Q of a branch that does nothing, any of its actions: the fixed point of V(s) = E[r_0 + .. + gamma^n V(s_n)] under the uniform
    /// behaviour, which is the value of that behaviour for every n.
    pub fn idle_value(&self) -> [f64; N_STATES] {
        let (rewards, reach) = self.n_step(1);
        let average = |f: &dyn Fn(usize) -> f64, s: usize| {
            (0..N_DIRECTIONS).map(|a| f(s * N_DIRECTIONS + a)).sum::<f64>() / N_DIRECTIONS as f64
        };
        let system = Matrix::from_fn(N_STATES, N_STATES, |s, to| {
            f64::from(u8::from(s == to)) - self.gamma * average(&|at| reach[(at, to)], s)
        });
        let v = solve(system, (0..N_STATES).map(|s| average(&|at| rewards[at], s)).collect());
        std::array::from_fn(|s| v[s])
    }

    /// Expected discounted reward of n steps from each (state, action), and where they end `[states * actions, states]`.
    fn n_step(&self, n: u32) -> (Vec<f64>, Matrix) {
        let mut rewards = Vec::new();
        let mut reach = Matrix::zeros(N_STATES * N_DIRECTIONS, N_STATES);
        for s in 0..N_STATES {
            for a in 0..N_DIRECTIONS {
                let mut share = [0.0; N_STATES];
                share[Self::next(s, a)] = 1.0;
                let mut reward = self.reward(s, a);
                for k in 1..n {
                    let mut later = [0.0; N_STATES];
                    for (from, p) in share.iter().enumerate() {
                        for action in 0..N_DIRECTIONS {
                            let p = p / N_DIRECTIONS as f64;
                            reward += self.gamma.powi(k as i32) * p * self.reward(from, action);
                            later[Self::next(from, action)] += p;
                        }
                    }
                    share = later;
                }
                rewards.push(reward);
                reach.row_mut(s * N_DIRECTIONS + a).copy_from_slice(&share);
            }
        }
        (rewards, reach)
    }
}

/// Solves A x = b by elimination with row exchanges.
fn solve(mut a: Matrix, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&i, &j| a[(i, column)].abs().total_cmp(&a[(j, column)].abs()))
            .expect("a column has rows");
        for j in 0..n {
            let (upper, lower) = (a[(column, j)], a[(pivot, j)]);
            (a[(column, j)], a[(pivot, j)]) = (lower, upper);
        }
        b.swap(column, pivot);
        for i in column + 1..n {
            let factor = a[(i, column)] / a[(column, column)];
            for j in column..n {
                a[(i, j)] -= factor * a[(column, j)];
            }
            b[i] -= factor * b[column];
        }
    }
    for i in (0..n).rev() {
        for j in i + 1..n {
            b[i] -= a[(i, j)] * b[j];
        }
        b[i] /= a[(i, i)];
    }
    b
}
