//! Limits of an ordinary user who has no control group: what holds them then, and that the result says so.

use glovebox_core::{Enforcement, LimitKind, Outcome};

use crate::{World, case::cases};

cases!["substitutes":
    the_result_says_by_what_each_limit_is_held needs(watched_memory),
    one_process_cannot_have_more_than_the_memory_limit needs(watched_memory),
    processes_that_share_the_memory_limit_are_watched needs(watched_memory),
    the_main_process_that_the_watch_ends_is_out_of_memory needs(watched_memory),
    the_number_of_processes_is_limited_without_groups needs(watched_memory),
    what_was_used_is_measured_without_groups needs(watched_memory),
    shared_memory_of_many_processes_is_added_up needs(watched_memory),
    memory_that_all_processes_share_is_counted_once needs(watched_memory),
    page_tables_are_counted_too needs(watched_memory),
];

async fn the_result_says_by_what_each_limit_is_held(w: World) {
    let run = w.sandbox().run(["true"]).await.expect_exit(0);
    let held = |name: &str| run.limits.enforcement.get(name).copied();
    assert_eq!(held("memory"), Some(Enforcement::Watched));
    assert_eq!(held("pids"), Some(Enforcement::Rlimit));
    assert_eq!(held("cpus"), Some(Enforcement::None));
    assert_eq!(run.limits.memory_group_bytes, None);
}

async fn one_process_cannot_have_more_than_the_memory_limit(w: World) {
    let run = w.sandbox().memory("64m").probe("eat-memory 512").await;
    assert_ne!(run.outcome, Outcome::Exited { code: 0 }, "{}", run.story());
    // What the program itself is made of comes on top of its data.
    assert!(run.usage.memory_peak_bytes <= 80 << 20, "{}", run.story());
}

/// Each child is within the limit, all together are not.
const HUNGRY: &str = "import os, time
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        held = bytearray(40 << 20)
        time.sleep(20)
        os._exit(0)
    children.append(pid)
pid, status = os.wait()
children.remove(pid)
for pid in children:
    os.kill(pid, 15)
";

async fn processes_that_share_the_memory_limit_are_watched(w: World) {
    let line = format!("python3 -c '{HUNGRY}' & wait $!");
    let run = w.sandbox().memory("96m").timeout("15s").sh(&line).await;
    assert!(
        run.limits_hit.contains(&LimitKind::Memory) || matches!(run.outcome, Outcome::OutOfMemory { .. }),
        "{}",
        run.story()
    );
    assert!(run.duration_ms < 15_000.0, "nobody was ended: {}", run.story());
}

async fn the_main_process_that_the_watch_ends_is_out_of_memory(w: World) {
    // Shared memory is not data of the process, so only the watch sees it.
    let code = "import mmap, time; m = mmap.mmap(-1, 256 << 20); [m.write(bytes(1 << 20)) for _ in range(256)]; time.sleep(20)";
    let run = w.sandbox().memory("64m").timeout("15s").run(["python3", "-c", code]).await;
    let Outcome::OutOfMemory { limit_bytes, evidence, .. } = &run.outcome else { panic!("{}", run.story()) };
    assert_eq!((*limit_bytes, evidence.as_deref()), (64 << 20, Some("watcher")));
}

async fn the_number_of_processes_is_limited_without_groups(w: World) {
    let run = w.sandbox().pids(20).probe("fork-bomb 100").await.expect_exit(0);
    assert_eq!(run.fact("stopped"), "EAGAIN");
    assert!((10..=20).contains(&run.number("forked")), "{}", run.story());
}

async fn what_was_used_is_measured_without_groups(w: World) {
    let run = w.sandbox().probe("burn-cpu 300").await.expect_exit(0);
    assert!((200.0..600.0).contains(&run.usage.cpu_ms), "{} ms", run.usage.cpu_ms);
    assert!(run.usage.processes_peak >= 1 && run.usage.memory_peak_bytes > 0, "{}", run.story());
}

/// Shared memory of 40 MiB: before the children are forked, or in each of them.
fn sharing(before: &str, in_each: &str) -> String {
    format!(
        "import mmap, os, time
def share():
    memory = mmap.mmap(-1, 40 << 20)
    for at in range(40):
        memory[at << 20:(at + 1) << 20] = bytes(1 << 20)
    return memory
def child():
    held = {in_each}
    os.write(ready, b'x')
    os.close(ready)
    time.sleep(20)
said, ready = os.pipe()
held = {before}
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    children.append(pid)
os.close(ready)
seen = 0
while seen < 4 and (part := os.read(said, 4)):
    seen += len(part)
for pid in children:
    os.kill(pid, 15)
killed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9 for pid in children)
print('killed', killed)"
    )
}

async fn shared_memory_of_many_processes_is_added_up(w: World) {
    let code = sharing("None", "share()");
    let run = w.sandbox().memory("96m").timeout("15s").run(["python3", "-c", &code]).await.expect_exit(0);
    assert!(run.number("killed") > 0 && run.limits_hit.contains(&LimitKind::Memory), "{}", run.story());
}

async fn memory_that_all_processes_share_is_counted_once(w: World) {
    let code = sharing("share()", "[held[at << 12] for at in range(40 << 8)]");
    let run = w.sandbox().memory("96m").timeout("15s").run(["python3", "-c", &code]).await.expect_exit(0);
    assert_eq!(run.number("killed"), 0, "{}", run.story());
    assert!(run.usage.memory_peak_bytes >= 40 << 20, "{}", run.story());
}

async fn page_tables_are_counted_too(w: World) {
    // Reading one byte of every 2 MiB takes a page of tables each, and no memory.
    let code = "import mmap
memory = mmap.mmap(-1, 256 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
print(sum(memory[at << 21] for at in range(128 << 10)))";
    let run = w.sandbox().memory("64m").timeout("15s").run(["python3", "-c", code]).await;
    assert!(matches!(run.outcome, Outcome::OutOfMemory { .. }), "{}", run.story());
}
