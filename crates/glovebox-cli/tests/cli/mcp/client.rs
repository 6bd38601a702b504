//! A client of the Model Context Protocol that is written by hand.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Bench;

/// A client that knows nothing but lines of JSON.
pub(super) struct Client {
    pub(super) child: Child,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: BufReader<ChildStdout>,
    pub(super) last: u64,
}

impl Client {
    /// Starts the server and shakes hands.
    pub(super) fn start(bench: &Bench, args: &[&str]) -> Client {
        let mut client = Client::without_handshake(bench, args);
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" }
        });
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    pub(super) fn without_handshake(bench: &Bench, args: &[&str]) -> Client {
        let mut command = bench.glovebox([&["mcp"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("a pipe")));
        Client { child, stdin, stdout, last: 0 }
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(super) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("still connected");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the server reads");
    }

    pub(super) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(super) fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).expect("the server writes") > 0, "the server closed its output");
        serde_json::from_str(&line).expect("every line of standard output is a message")
    }

    /// Sends a request and waits for its answer.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(super) fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool that must not be a fault of the protocol.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// Calls a tool that must succeed, and returns its text.
    pub(super) fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["content"][0]["text"].as_str().expect("text").to_owned()
    }

    /// Calls a tool that must fail, and returns what it says.
    pub(super) fn failure(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("text").to_owned()
    }

    pub(super) fn sandbox(&mut self) -> String {
        let usage = self.call("usage", json!({}));
        usage["structuredContent"]["sandbox"].as_str().expect("an id").to_owned()
    }

    /// Closes the connection and waits for the end.
    pub(super) fn close(mut self) -> i32 {
        drop(self.stdin.take());
        self.wait()
    }

    pub(super) fn wait(mut self) -> i32 {
        let (sender, receiver) = mpsc::channel();
        let pid = Pid::from_child(&self.child);
        std::thread::spawn(move || sender.send(self.child.wait().expect("it ends").code().unwrap_or(-1)));
        receiver.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the server did not end")
        })
    }
}
