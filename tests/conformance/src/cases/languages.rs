//! Toolchains of the host, as they are.

use crate::{World, case::cases};

cases!["languages":
    python_runs_with_its_standard_library program("python3"),
    python_can_use_processes_threads_and_sockets program("python3"),
    node_runs_with_its_event_loop program("node"),
    node_starts_under_a_small_memory_limit program("node"),
    a_compiler_of_the_host_builds_a_program program("gcc"),
    perl_runs program("perl"),
    bash_runs program("bash"),
];

async fn python_runs_with_its_standard_library(w: World) {
    let code = "import json, ssl, sqlite3, hashlib, tempfile, asyncio, ctypes, zlib\n\
                with tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('x')\n\
                db = sqlite3.connect('test.db'); db.execute('create table t (a)'); db.commit()\n\
                asyncio.run(asyncio.sleep(0.01)); print(json.dumps({'sum': sum(range(10))}))";
    w.sandbox().run(["python3", "-c", code]).await.expect_exit(0).expect_out("{\"sum\": 45}\n");
}

async fn python_can_use_processes_threads_and_sockets(w: World) {
    let code = "import multiprocessing, subprocess, socket, threading\n\
                def f(x): return x * x\n\
                if __name__ == '__main__':\n\
                \x20   with multiprocessing.Pool(2) as pool: print(pool.map(f, [1, 2, 3]))\n\
                \x20   print(subprocess.run(['echo', 'sub'], capture_output=True, text=True).stdout.strip())\n\
                \x20   a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n\
                \x20   t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n";
    let setup = w.sandbox().file("/workspace/agent_workspace/main.py", code, 0o644);
    let run = setup.run(["python3", "main.py"]).await.expect_exit(0);
    run.expect_out("[1, 4, 9]\nsub\nb'x'\nthread\n");
}

async fn node_runs_with_its_event_loop(w: World) {
    let code = "const fs = require('fs'), http = require('http'), crypto = require('crypto');\
                fs.writeFileSync('x', 'y');\
                const s = http.createServer((q, r) => r.end('served')).listen(0, '127.0.0.1', () =>\
                http.get({port: s.address().port, host: '127.0.0.1'}, r => r.on('data', d => {\
                console.log(String(d), crypto.createHash('md5').update('').digest('hex')); process.exit(0) })));";
    let run = w.sandbox().run(["node", "-e", code]).await.expect_exit(0);
    run.expect_out("served d41d8cd98f00b204e9800998ecf8427e\n");
}

async fn node_starts_under_a_small_memory_limit(w: World) {
    w.sandbox().memory("256m").run(["node", "-e", "console.log(6*7)"]).await.expect_exit(0).expect_out("42\n");
}

async fn a_compiler_of_the_host_builds_a_program(w: World) {
    let code = "#include <stdio.h>\nint main(void) { puts(\"built\"); return 3; }\n";
    let setup = w.sandbox().file("/workspace/agent_workspace/main.c", code, 0o644);
    setup.sh("gcc -o main main.c && ./main").await.expect_exit(3).expect_out("built\n");
}

async fn perl_runs(w: World) {
    w.sandbox()
        .run(["perl", "-e", "print join(',', map { $_ * 2 } 1..3), qq(\\n)"])
        .await
        .expect_exit(0)
        .expect_out("2,4,6\n");
}

async fn bash_runs(w: World) {
    let line = "a=(1 2 3); echo ${#a[@]}; cat <(echo substituted); echo here <<< x";
    w.sandbox().run(["bash", "-c", line]).await.expect_exit(0).expect_out("3\nsubstituted\nhere\n");
}
