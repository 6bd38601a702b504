//! A tool over MCP, from the message of a client to the answer.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    Bench,
    report::{Goal, Line, Report},
    samples::{Contestant, take_turns},
};

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let data = tempfile::tempdir()?;
    let mut client = Client::start(&bench.flags.glovebox.to_string_lossy(), &data.path().to_string_lossy())?;
    client.call("usage", &json!({}))?;
    let client = std::cell::RefCell::new(client);
    let call = |tool: &'static str, arguments: Value| move |client: &mut Client| client.call(tool, &arguments);
    let (usage, run) = (call("usage", json!({})), call("run_command", json!({ "argv": ["/bin/true"] })));
    let contestants = vec![
        Contestant::new("glovebox mcp, usage", || usage(&mut client.borrow_mut())),
        Contestant::new("glovebox mcp, run_command /bin/true", || run(&mut client.borrow_mut())),
        Contestant::new("glovebox mcp, ping", || client.borrow_mut().ask("ping", &json!({})).map(drop)),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let [usage, run, ping] = [0, 1, 2].map(|at| samples[at].median());
    for (measure, value) in
        [("MCP: a trivial tool (`usage`), round trip", usage), ("MCP: `run_command` of /bin/true, recorded", run)]
    {
        report.line(Line {
            measure,
            goal_text: "≤ 3 ms",
            goal: Goal::AtMost(3.0),
            measured: format!("{value:.2} ms"),
            compared: format!("an MCP ping {ping:.2} ms"),
            value,
        });
    }
    report.samples("mcp", samples);
    Ok(())
}

/// A client that knows nothing but lines of JSON.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start(glovebox: &str, data: &str) -> Result<Self> {
        let mut command = Command::new(glovebox);
        command.args(["mcp", "--data-dir", data]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("glovebox mcp cannot be started")?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut client = Client { child, input, output, last: 0 };
        let about = json!({ "name": "bench", "version": "1" });
        client
            .ask("initialize", &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about }))?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        Ok(self.input.write_all(format!("{message}\n").as_bytes())?)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let mut answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["id"] == self.last && answer["error"].is_null(), "{method} gave {answer}");
        Ok(answer["result"].take())
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<()> {
        let result = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        ensure!(result["isError"] == false, "{tool} gave {result}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
