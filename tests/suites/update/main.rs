//! The end of a step: norms, gate, sweep over the parameters, spectral norms, internal state vector, readback.

mod adamw;
mod gate;
mod isv;
mod norm;
mod prune;
mod publish;
mod settle;
mod spectral;
mod spectral_world;
mod vaccine;
mod world;

fn main() {
    let subjects = [
        adamw::cases(),
        gate::cases(),
        isv::cases(),
        norm::cases(),
        prune::cases(),
        publish::cases(),
        settle::cases(),
        spectral::cases(),
        vaccine::cases(),
    ];
    onegraph_tests::run(subjects.into_iter().flatten().collect())
}
