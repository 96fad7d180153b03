//! The audit as a page of the documentation.

use std::fmt::Write;

use super::text::PHASES;
use super::{Audit, file_of};

const OPENING: &str = "\
# The hot path

A training step is one call of the driver, `cuGraphLaunch`, and what the host sees of it are plain loads from mapped memory. This
page lists every call that training makes: where, which, in what class and why. `onegraph audit --device cpu --preset tiny --steps 60
--docs docs/hot-path.md` writes it, and a test compares the two.

`cpu:X` is the CPU backend doing what the CUDA backend does by the driver's function X; a read or write of a buffer there is one
copy, on a GPU the waits for what was launched before come with it. `onegraph audit` prints the same with counts and bytes, on the
device at hand, and exits with 1 when a step made any call but its launch. `--json` has the totals `steps`, `hot_calls`,
`graph_launches` and `violations`, the `faults` in words, and `lines` of `class`, `reason`, `name`, `kind`, `direction`, `memory`,
`phase`, `thread`, `place` (with the line of the source), `calls` and `bytes`.

| class | what |
|---|---|
| graph-launch | the one launch of a step |
| mapped-pinned | no call: memory of the host's that the device reaches |
| cold-path | a call outside the steps, with its reason |
| violation | any other call between two steps; there is none |

Between two steps training holds a `StepLoop` (`host/src/train/step_loop.rs`), which borrows the trainer, launches the step, reads
what the latest finished one told, and can do nothing else.
";

impl Audit {
    /// The page. It has no counts and no source lines, so that it changes only when a file's calls do.
    pub fn page(&self) -> String {
        let (mut page, lines) = (OPENING.to_owned(), self.merged(false));
        for (phase, heading) in PHASES {
            let _ = write!(page, "\n## {heading}\n\n| place | call | class | reason |\n|---|---|---|---|\n");
            for line in lines.iter().filter(|line| line.calls.phase == phase) {
                let place = line.calls.place.as_deref().map_or("", file_of);
                let _ =
                    writeln!(page, "| `{place}` | `{}` | {} | {} |", line.calls.name, line.class.name(), line.reason);
            }
        }
        page
    }
}
