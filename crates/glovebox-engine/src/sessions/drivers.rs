//! How the interpreters of sessions are started, and what they are told.

use bytes::Bytes;
use glovebox_core::Result;

/// How one language's interpreter is started as a session, and what it is told.
pub(crate) struct Driver {
    /// The language's name.
    pub(crate) language: &'static str,
}

const PYTHON: Driver = Driver { language: "python" };

/// The driver of a language.
pub(crate) fn driver(language: &str) -> Option<&'static Driver> {
    (language == "python").then_some(&PYTHON)
}

/// The languages that there are drivers for.
pub(crate) fn languages() -> impl Iterator<Item = &'static str> {
    ["python"].into_iter()
}

impl Driver {
    /// What is started.
    pub(crate) fn argv(&self) -> Vec<String> {
        let bootstrap = "import os,sys,socket,json,traceback\ns=socket.socket(fileno=3);os.set_inheritable(3,False);f=s.makefile('rwb')\nf.readline();f.write(b'ready\\n');f.flush();g={'__name__':'__main__'}\nwhile 1:\n l=f.readline().split()\n if not l: break\n m=json.loads(f.read(int(l[1])));c=0\n try:\n  exec(compile(m['code'],'<x>','exec'),g)\n except BaseException as e:\n  traceback.print_exc();c=1;b=json.dumps({'name':type(e).__name__,'message':str(e),'traceback':''}).encode();f.write(b'exception %d\\n'%len(b)+b)\n sys.stdout.flush();b=b'shown';f.write(b'result text/plain 0 value %d\\n'%len(b)+b);f.write(b'done %d\\n'%c);f.flush()";
        vec!["python3".into(), "-c".into(), bootstrap.into()]
    }

    /// What it is told first.
    pub(crate) fn opening(&self) -> Bytes {
        Bytes::from_static(b"driver 0\n")
    }

    /// What it is told for one run.
    pub(crate) fn run(&self, code: &str, env: &[(String, String)], cwd: Option<&str>) -> Result<Bytes> {
        let env: serde_json::Map<String, serde_json::Value> =
            env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let text = serde_json::json!({ "code": code, "env": env, "cwd": cwd }).to_string();
        Ok(Bytes::from(format!("run {}\n{text}", text.len())))
    }
}
