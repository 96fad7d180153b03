//! The kernels, each against numbers worked out another way, on both backends.

mod copy;
mod counters;
mod gather;
mod hindsight;
mod is_weights;
mod matmul;
mod philox;
mod ptx;
mod reduce;
mod rescore;
mod scan;
mod seg_tree;
mod seg_tree_sample;

fn main() {
    let subjects = [
        copy::cases(),
        counters::cases(),
        gather::cases(),
        hindsight::cases(),
        is_weights::cases(),
        matmul::cases(),
        philox::cases(),
        ptx::cases(),
        reduce::cases(),
        rescore::cases(),
        scan::cases(),
        seg_tree::cases(),
        seg_tree_sample::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
