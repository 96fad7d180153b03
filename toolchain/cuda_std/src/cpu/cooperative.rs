//! A block whose threads are coroutines, and its scheduler.
//!
//! A thread runs until it must wait for others: at a barrier, in a warp operation, in [`super::wait_until`]. Whoever
//! arrives last does the operation's work for all and makes the others ready. A block in which all wait for something
//! that another block must do is set aside while its worker begins further blocks, so that a grid-wide barrier works
//! with any number of operating-system threads.
use std::cell::RefCell;
use std::ptr;

use super::executor::{Block, Worker};
use super::fault::{Fault, FaultKind};
use super::halt::Patience;
use super::position::{CURRENT, index_of};
use super::stack::OnShortage;
use super::team::Team;

/// Most blocks that one worker sets aside: each nests a few frames on its own stack.
const MAX_TEAMS: usize = 256;

/// The teams of one worker: one for the block that it runs and one for each that it has set aside.
#[derive(Default)]
pub(super) struct Teams {
    idle: RefCell<Vec<Team>>,
    /// The blocks under way, outermost first; each is on the stack of a `run_cooperative` that has not returned.
    under_way: RefCell<Vec<(*const Team, *const Block<'static>)>>,
}

impl Worker<'_> {
    /// Whether a further block can begin while others are set aside; never waits for stacks, which those hold.
    fn has_idle_team(&self) -> bool {
        let mut idle = self.teams.idle.borrow_mut();
        if idle.is_empty() && self.teams.under_way.borrow().len() < MAX_TEAMS {
            idle.extend(Team::new(self.run, OnShortage::Fail));
        }
        !idle.is_empty()
    }
}

impl Block<'_> {
    /// Runs a cooperative kernel's block to its end, and any blocks that it waits for.
    #[inline(never)]
    pub(super) fn run_cooperative(&self, thread: &dyn Fn()) {
        let Worker { run, teams, .. } = self.worker;
        let idle = teams.idle.borrow_mut().pop();
        let team = match idle.map_or_else(|| Team::new(run, OnShortage::Wait), Ok) {
            Ok(team) => team,
            Err(message) => {
                return run.record(self.linear, Fault::of_launch(run.info(), FaultKind::Resources, message));
            }
        };
        // SAFETY: this forgets the lifetime of `thread`; the pointer is used by this block's coroutines alone, and they
        // are all outside the kernel when this function returns.
        team.state
            .body
            .set(unsafe { std::mem::transmute::<*const (dyn Fn() + '_), *const (dyn Fn() + 'static)>(thread) });
        team.start(self);
        teams.under_way.borrow_mut().push((&raw const team, ptr::from_ref(self).cast()));
        self.drive(&team);
        if run.options.check
            && !run.stopped()
            && let Some(fault) = team.state.shared.overrun(run.info(), index_of(run.shape.grid, self.linear))
        {
            run.record(self.linear, fault);
        }
        teams.under_way.borrow_mut().pop();
        CURRENT.with(|current| current.block.set(ptr::null()));
        teams.idle.borrow_mut().push(team);
    }

    fn drive(&self, team: &Team) {
        let run = self.worker.run;
        let mut patience = Patience::default();
        while !team.done() {
            if run.stopped() || team.state.cancelled.get() {
                team.cancel(self);
                continue;
            }
            let epoch = if patience.waits { run.grid_wait.epoch() } else { 0 };
            let moved = team.pass(self);
            if moved || team.done() || team.state.cancelled.get() {
                patience.moved(run);
                continue;
            }
            if self.pass_outer() {
                patience.moved(run);
                continue;
            }
            // Nothing of this worker's can move. Only a thread in `wait_until` can be helped by another block.
            let hopeless = team.state.polling.iter().all(|lanes| lanes.get() == 0);
            if !hopeless
                && self.worker.has_idle_team()
                && let Some(next) = run.claim_one()
            {
                self.worker.run_block(next);
                continue;
            }
            if hopeless || patience.exhausted(run, epoch) {
                self.enter();
                team.state.cancel(team.state.stuck(run));
            }
        }
        if let Some(fault) = team.state.fault.take() {
            run.record(self.linear, fault);
        }
    }

    /// One pass over the blocks that this worker has set aside, innermost first.
    fn pass_outer(&self) -> bool {
        let under_way = self.worker.teams.under_way.borrow().clone();
        let mut moved = false;
        for &(team, block) in under_way.iter().rev().skip(1) {
            // SAFETY: each entry points into the frame of a `run_cooperative` further up this very stack, which removes
            // it before it returns.
            let (team, block) = unsafe { (&*team, &*block) };
            moved |= !team.done() && team.pass(block);
            if team.state.cancelled.get()
                && let Some(fault) = team.state.fault.take()
            {
                self.worker.run.record(block.linear, fault);
                return true;
            }
        }
        moved
    }
}
