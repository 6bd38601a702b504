//! One more line in a session, and a figure in one.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use glovebox_core::SessionName;
use glovebox_engine::{NewSandbox, RunRequest, Sandbox};

use crate::{
    Bench,
    report::{Goal, Line, Report},
    samples::{Contestant, take_turns},
    succeeded,
};

/// A Python that runs a line for each line that it reads, and says when it is done: as little as can be done.
const BARE: &str = "import sys\nnames = {}\nfor line in sys.stdin:\n    exec(line, names)\n    sys.stdout.write('done\\n')\n    sys.stdout.flush()\n";

/// A figure, as somebody would draw it.
const FIGURE: &str =
    "fig, ax = plt.subplots(); ax.plot(range(100), [n * n for n in range(100)]); ax.set_title('squares')";

const IMPORTS: &str = "import io, matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as plt";

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let sandbox = bench.runtime.block_on(bench.engine.create_living(NewSandbox::default()))?;
    let measured = line(bench, report, &sandbox).and_then(|()| figure(bench, report, &sandbox));
    bench.runtime.block_on(sandbox.destroy())?;
    measured
}

/// Runs code in the session. The result is the whole one: usage, changes, what was shown.
fn run(bench: &Bench, sandbox: &Sandbox, code: &str) -> Result<usize> {
    let name = SessionName::parse("bench").map_err(anyhow::Error::msg)?;
    let result = bench.runtime.block_on(sandbox.run(RunRequest::in_session(name, "python", code)?))?;
    succeeded(&result)?;
    Ok(result.results.iter().flatten().filter(|shown| shown.mime == "image/png").count())
}

fn line(bench: &Bench, report: &mut Report, sandbox: &Sandbox) -> Result<()> {
    run(bench, sandbox, "x = 0")?;
    let mut bare = Bare::start()?;
    bare.run("x = 0")?;
    let ours = Contestant::new("glovebox, one more line", || run(bench, sandbox, "x += 1").map(drop));
    let theirs = Contestant::new("python3 by a pipe", || bare.run("x += 1"));
    let samples = take_turns(bench.flags.count, vec![ours, theirs])?;
    let (ours, bare) = (samples[0].median(), samples[1].median());
    report.line(Line {
        measure: "one more line in a Python session, library",
        goal_text: "≤ 1 ms",
        goal: Goal::AtMost(1.0),
        measured: format!("{ours:.2} ms"),
        compared: format!("python3 by a pipe {bare:.2} ms"),
        value: ours,
    });
    report.samples("session", samples);
    Ok(())
}

fn figure(bench: &Bench, report: &mut Report, sandbox: &Sandbox) -> Result<()> {
    let drawn = run(bench, sandbox, &format!("import matplotlib.pyplot as plt\n{FIGURE}"))?;
    ensure!(drawn == 1, "a figure gave {drawn} pictures");
    let mut bare = Bare::start()?;
    bare.run(IMPORTS)?;
    let plain = format!("{FIGURE}; fig.savefig(io.BytesIO(), format='png'); plt.close(fig)");
    bare.run(&plain)?;
    let ours = Contestant::new("glovebox, a figure", || run(bench, sandbox, FIGURE).map(drop));
    let theirs = Contestant::new("plain matplotlib", || bare.run(&plain));
    let samples = take_turns(bench.flags.count, vec![ours, theirs])?;
    let (ours, bare) = (samples[0].median(), samples[1].median());
    let goal = ("≤ 1.2 × plain matplotlib, which draws the same into memory", Goal::AtMost(1.2));
    report.compare("a figure in a Python session, library", goal, ours, ("plain matplotlib", bare));
    report.samples("figure", samples);
    Ok(())
}

/// A bare Python, outside of any sandbox.
struct Bare {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Bare {
    fn start() -> Result<Self> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", BARE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("python3 cannot be started")?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        Ok(Bare { child, input, output })
    }

    fn run(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        ensure!(answer == "done\n", "the bare Python said {answer:?}");
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
