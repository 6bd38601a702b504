//! Code that means harm, or knows no better. After each the session works on, or its death is seen.

use super::Session;

/// What is run, and what is to be seen of it.
enum Then {
    /// It ends with this code, whatever it wrote.
    Ends(u8),
    /// It ends somehow.
    EndsSomehow,
    /// It ends, and leaves what the run after it cannot do without; a later one repairs it.
    EndsAndBreaks,
    /// The interpreter dies.
    Dies,
}
use Then::{Dies, Ends, EndsAndBreaks, EndsSomehow};

/// Runs each in one session, and after each a run that must work. A session that died is followed by another.
fn survive(language: &'static str, after: (&str, &str), cases: &[(&str, Then)]) {
    let mut session = Session::start(language);
    for (code, then) in cases {
        let seen = session.run(code);
        let short = code.chars().take(100).collect::<String>();
        match then {
            Ends(code) => assert_eq!(seen.code, Some(*code), "{short}: {seen:?}"),
            EndsSomehow | EndsAndBreaks => assert!(seen.code.is_some(), "{short}: {seen:?}"),
            Dies => assert!(seen.died.is_some() && seen.code.is_none(), "{short}: {seen:?}"),
        }
        if matches!(then, Dies) {
            session = Session::start(language);
        }
        if matches!(then, EndsAndBreaks) {
            continue;
        }
        let next = session.run(after.0);
        assert_eq!((next.out.as_str(), next.code), (after.1, Some(0)), "after {short}: {next:?}");
    }
}

const PYTHON: &[(&str, Then)] = &[
    ("import os, sys; os.close(1); os.close(2)", Ends(0)),
    ("import os; os.close(0); os.close(1); open('/dev/zero'); open('/dev/zero')", Ends(0)),
    ("import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1); print('lost')", Ends(0)),
    ("import sys; sys.stdout.close(); sys.stderr.close()", Ends(0)),
    ("import sys; sys.stdout = None; sys.stderr = None; 1/0", Ends(1)),
    ("import sys; del sys.stdout, sys.stderr, sys.stdin", Ends(0)),
    ("import sys; sys.stderr = 5; 1/0", Ends(1)),
    ("import sys; sys.stderr = sys.__stderr__", Ends(0)),
    ("import os; os.closerange(3, 200)", Ends(0)),
    (
        "import builtins\nkeep = dict(vars(builtins))\nfor name in ('len', 'isinstance', 'repr', 'getattr', 'open', 'type', 'str', 'sum', 'map', 'next', 'list', 'compile', 'exec', 'eval', 'Exception', 'BaseException', '__import__', '__build_class__'): setattr(builtins, name, None)",
        EndsAndBreaks,
    ),
    ("1/0", EndsAndBreaks),
    ("5", EndsAndBreaks),
    ("vars(builtins).update(keep)", Ends(0)),
    ("import builtins\nkeep = dict(vars(builtins))\nvars(builtins).clear()", EndsAndBreaks),
    ("1/0", EndsAndBreaks),
    ("__builtins__.__dict__.update(keep)", Ends(0)),
    ("del __builtins__", Ends(0)),
    ("__builtins__ = {}", Ends(0)),
    ("globals().clear()", Ends(0)),
    ("import sys; sys.modules.clear()", Ends(0)),
    ("1/0", Ends(1)),
    ("import asyncio\nawait asyncio.sleep(0)", EndsSomehow),
    ("import sys; sys.modules = None; 1/0", Ends(1)),
    ("import sys; sys.path = None; sys.meta_path = None; sys.path_hooks = []; 1/0", Ends(1)),
    ("import sys; sys.setrecursionlimit(50)\ndef f(): f()\nf()", EndsSomehow),
    ("import sys\ndef f(): f()\ntry: f()\nexcept RecursionError: sys.setrecursionlimit(30)\n1/0", EndsSomehow),
    ("import sys\ndef t(*a): raise ValueError('traced')\nsys.settrace(t)", Ends(0)),
    ("import sys\ndef t(*a): raise ValueError('profiled')\nsys.setprofile(t)", EndsSomehow),
    ("import sys, threading\nthreading.settrace(lambda *a: 1/0); threading.setprofile(lambda *a: 1/0)", Ends(0)),
    ("import gc; gc.disable(); gc.set_threshold(1)", Ends(0)),
    ("class E(Exception):\n    def __str__(self): raise E\n    __repr__ = __str__\nraise E", Ends(1)),
    (
        "class M(type):\n    @property\n    def __name__(self): raise ValueError\n    def __instancecheck__(self, x): 1/0\nclass E(Exception, metaclass=M): pass\nraise E",
        Ends(1),
    ),
    (
        "class E(BaseException):\n    @property\n    def __traceback__(self): 1/0\n    @property\n    def __cause__(self): 1/0\nraise E",
        Ends(1),
    ),
    ("raise BaseException('x')", Ends(1)),
    ("raise GeneratorExit", Ends(1)),
    ("e = ValueError('self'); e.__context__ = e; e.__cause__ = e\nraise e", Ends(1)),
    ("e = None\nfor i in range(50000):\n    n = ValueError(i); n.__context__ = e; e = n\nraise e", Ends(1)),
    ("raise ValueError('x' * 10_000_000)", Ends(1)),
    ("raise ValueError('\\ud800 \\x00 \\x1b[31m')", Ends(1)),
    ("raise type('N' * 300_000, (Exception,), {})('m')", Ends(1)),
    (
        "import sys\nsys.setrecursionlimit(10**6)\nimport threading\nthreading.stack_size(512 << 20)\ndef a(n): return b(n)\ndef b(n):\n    if n == 0: 1/0\n    return a(n - 1)\na(20000)",
        EndsSomehow,
    ),
    ("import os\nif os.fork() == 0: display('child'); 1/0\nos.wait()", Ends(0)),
    ("import os, sys\nif os.fork() == 0: sys.exit(3)\nassert os.wait()[1] == 3 << 8", Ends(0)),
    (
        "class F:\n    def __repr__(self):\n        import os\n        if os.fork(): os.wait()\n        return 'forked'\nF()",
        Ends(0),
    ),
    (
        "import threading\ndef late():\n    raise SystemExit(9)\nt = threading.Thread(target=late); t.start(); t.join()",
        Ends(0),
    ),
    ("import threading\nt = threading.Thread(target=lambda: 1/0); t.start(); t.join()", Ends(0)),
    ("import atexit; atexit.register(lambda: 1/0)", Ends(0)),
    (
        "import signal\ndef h(*a): raise ValueError('alarm')\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)\nwhile True: pass",
        EndsAndBreaks,
    ),
    ("x = 1", EndsAndBreaks),
    ("import signal; signal.setitimer(signal.ITIMER_REAL, 0)", EndsAndBreaks),
    (
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, signal.SIG_IGN)",
        EndsSomehow,
    ),
    ("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)", Ends(0)),
    ("import sys; sys.excepthook = None; 1/0", Ends(1)),
    ("import sys; sys.excepthook = lambda *a: sys.exit(7); 1/0", Ends(1)),
    ("import sys; sys.displayhook = None; sys.excepthook = sys.__excepthook__; 5", Ends(0)),
    ("import os; os.write = os.read = os.getpid = os.dup2 = None; 5", Ends(0)),
    (
        "import json, traceback, linecache\njson.dumps = traceback.TracebackException = None; linecache.cache = None\n1/0",
        Ends(1),
    ),
    ("import warnings; warnings.simplefilter('error')", Ends(0)),
    ("class R:\n    def __repr__(self): return 5\nR()", Ends(0)),
    (
        "class S(str):\n    def encode(self, *a): 1/0\n    def __len__(self): 1/0\nclass R:\n    def __repr__(self): return S('s')\n    def _repr_html_(self): return S('h')\nR()",
        Ends(0),
    ),
    ("class R:\n    def __getattribute__(self, name): 1/0\nR()", Ends(0)),
    (
        "class R:\n    _repr_html_ = property(lambda self: 1/0)\n    __class__ = property(lambda self: 1/0)\nR()",
        Ends(0),
    ),
    ("del display", Ends(1)),
    (
        "import sys\nfor frame in sys._current_frames().values():\n    while frame: frame.f_globals.get('x'); frame = frame.f_back",
        Ends(0),
    ),
    ("exec('(' * 300)", Ends(1)),
    ("'(' * 100000 + ')' * 100000", Ends(0)),
    ("\u{0}", Ends(1)),
    ("import os; os._exit(3)", Dies),
    ("import os; os.kill(os.getpid(), 9)", Dies),
    ("import os; os.abort()", Dies),
    ("import ctypes; ctypes.string_at(0)", Dies),
    ("import os; os.execv('/bin/true', ['true'])", Dies),
    ("import os\nfor n in range(3, 300):\n    try: os.close(n)\n    except OSError: pass", Dies),
];

#[test]
fn hostile_python() {
    survive("python", ("import sys; print('alive', 6 * 7)", "alive 42\n"), PYTHON);
}

const JAVASCRIPT: &[(&str, Then)] = &[
    ("require('fs').closeSync(1); require('fs').closeSync(2); console.log('lost')", EndsSomehow),
    (
        "const f = require('fs'); f.closeSync(0); f.closeSync(1); f.openSync('/dev/zero'); f.openSync('/dev/zero')",
        EndsSomehow,
    ),
    ("process.stdout.destroy(); process.stderr.destroy()", EndsSomehow),
    ("process.stdout.end()", EndsSomehow),
    ("process.stdout.write = null", Ends(0)),
    ("delete process.stdout.write", Ends(0)),
    (
        "const kept = [Array.prototype.push, JSON.stringify, Promise.prototype.then, String.prototype.split, RegExp.prototype.exec]; Array.prototype.push = JSON.stringify = Promise.prototype.then = String.prototype.split = RegExp.prototype.exec = null",
        EndsSomehow,
    ),
    ("5", Ends(0)),
    ("null.x", Ends(1)),
    ("await 5; 6", Ends(0)),
    (
        "[Array.prototype.push, JSON.stringify, Promise.prototype.then, String.prototype.split, RegExp.prototype.exec] = kept",
        Ends(0),
    ),
    ("Object.prototype.then = function () {}; delete Object.prototype.then", Ends(0)),
    (
        "Object.defineProperty(Object.prototype, 'value', { get() { throw 1 }, set() {}, configurable: true }); 5",
        EndsSomehow,
    ),
    ("delete Object.prototype.value", EndsSomehow),
    ("Object.prototype.with = Object.prototype.cwd = Object.prototype.env = 5", Ends(0)),
    ("process.removeAllListeners(); setTimeout(() => {}, 1)", Ends(0)),
    ("process.exit = null", Ends(0)),
    ("const mine = [process, Buffer]; globalThis.process = null; globalThis.Buffer = null", EndsSomehow),
    ("globalThis.__glovebox = null; delete globalThis.__glovebox; delete globalThis.display", Ends(0)),
    ("throw { get message() { throw 1 }, get stack() { throw 2 }, toString() { throw 3 } }", Ends(1)),
    ("throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })", Ends(1)),
    ("const e = new Error('self'); e.cause = e; throw e", Ends(1)),
    ("const big = new Error('x'.repeat(5000000)); throw big", Ends(1)),
    ("const bad = new Error('\\ud800'); bad.name = { toString() { throw 1 } }; throw bad", Ends(1)),
    ("throw undefined", Ends(1)),
    ("throw null", Ends(1)),
    ("Error.stackTraceLimit = 1e9; (function f(n) { if (n) f(n - 1); else throw new Error('deep') })(5000)", Ends(1)),
    ("Error.prepareStackTrace = () => { throw 1 }; null.x", Ends(1)),
    ("Error.prepareStackTrace = () => ({}); throw new Error('object')", Ends(1)),
    ("Error.prepareStackTrace = undefined; Error.stackTraceLimit = 10", Ends(0)),
    ("new Function('return this')().x = 1", Ends(0)),
    ("[globalThis.process, globalThis.Buffer] = mine; process.on('exit', () => { throw 1 })", Ends(0)),
    ("process.chdir = null", Ends(0)),
    ("const env = process.env; process.env = null", EndsAndBreaks),
    ("process.env = env", EndsSomehow),
    ("setInterval(() => {}, 1); setImmediate(function again() { setImmediate(again) })", Ends(0)),
    ("process.abort()", Dies),
    ("process.kill(process.pid, 'SIGKILL'); for (;;);", Dies),
    ("process.reallyExit(5)", Dies),
    ("require('fs').closeSync(3)", Dies),
];

#[test]
fn hostile_javascript() {
    survive("javascript", ("console.log('alive', 6 * 7)", "alive 42\n"), JAVASCRIPT);
}

const BASH: &[(&str, Then)] = &[
    ("PROMPT_COMMAND='echo prompted'; PS1='$(echo prompted)'; PS0=zero", Ends(0)),
    ("unset PROMPT_COMMAND PS1 PS2 IFS; IFS=d", Ends(0)),
    ("unset IFS; unset -f __glovebox_end __glovebox_begin; :", Ends(0)),
    ("__glovebox_status=77 __glovebox_last=x __glovebox=no", EndsSomehow),
    ("printf() { echo mine; }; eval() { :; }; alias printf=false; set -o posix", EndsSomehow),
    ("set +o posix; unset -f printf eval", EndsSomehow),
    ("while read -r line; do echo $line; done", Ends(0)),
    ("exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-", Ends(0)),
    ("set -n", Ends(0)),
    ("set -o noglob -o noclobber; shopt -s extglob failglob; echo *.nothing", EndsSomehow),
    ("set +o noglob +o noclobber; shopt -u failglob", Ends(0)),
    ("trap 'true' INT TERM HUP; kill -INT $$", Ends(0)),
    ("trap - INT TERM HUP", Ends(0)),
    ("kill -TERM $$", Dies),
    ("return 5", EndsSomehow),
    ("break 5; continue", EndsSomehow),
    ("f() { f; }; FUNCNEST=100; f", EndsSomehow),
    ("unset FUNCNEST; echo $((1/0))", Ends(1)),
    ("}", Ends(2)),
    ("echo 'open", EndsSomehow),
    ("cat <<END\nno end", Ends(0)),
    ("exit 0", Dies),
    ("kill -KILL $$", Dies),
    ("exec true", Dies),
];

#[test]
fn hostile_bash() {
    survive("bash", ("echo alive $((6 * 7))", "alive 42\n"), BASH);
}

#[test]
fn output_without_end_is_read_and_the_run_can_be_stopped() {
    for (language, code) in [
        ("python", "print('go')\nwhile True: print('x' * 1000)"),
        ("javascript", "console.log('go'); for (;;) console.log('x'.repeat(1000))"),
        ("bash", "echo go; yes"),
    ] {
        let mut session = Session::start(language);
        let seen = session.interrupt(code, "go\n");
        assert_eq!(seen.code, Some(130), "{language}: {}", seen.err);
        let again = if language == "python" { "print('alive')" } else { "echo = 1" };
        let seen = session.run(if language == "bash" { "echo alive" } else { again });
        assert!(seen.code.is_some(), "{language}: {seen:?}");
    }
}
