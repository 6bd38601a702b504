//! Secrets reach the program and nothing else.

use glovebox_engine::Event;

use crate::{World, case::cases, finished::Finished};

const VALUE: &str = "hunter2-correct-horse";

cases!["secrets":
    a_secret_is_given_to_the_program,
    the_exact_value_of_a_secret_is_masked_in_the_output,
    the_value_of_a_secret_is_masked_in_the_recorded_environment,
    a_secret_that_is_split_over_writes_is_masked_all_the_same,
    live_output_is_never_altered,
    an_artifact_that_holds_a_secret_is_left_out_and_said_so,
    a_secret_in_the_arguments_is_masked,
];

fn everything(run: &Finished) -> String {
    serde_json::to_string(&run.0).expect("a result is JSON")
}

async fn a_secret_is_given_to_the_program(w: World) {
    let line = format!("test \"$TOKEN\" = {} && echo same", VALUE.replace('-', "\"\"-"));
    w.sandbox().secret("TOKEN", VALUE).sh(&line).await.expect_exit(0).expect_out("same\n");
}

async fn the_exact_value_of_a_secret_is_masked_in_the_output(w: World) {
    let setup = w.sandbox().secret("TOKEN", VALUE);
    let run = setup.sh("echo out $TOKEN.; echo err:$TOKEN >&2").await.expect_exit(0);
    assert_eq!((run.out().as_str(), run.err().as_str()), ("out [redacted].\n", "err:[redacted]\n"));
    assert!(!everything(&run).contains(VALUE));
}

async fn the_value_of_a_secret_is_masked_in_the_recorded_environment(w: World) {
    let run = w.sandbox().secret("TOKEN", VALUE).env("URL", &format!("https://{VALUE}@host")).run(["true"]).await;
    assert_eq!(run.command.env["TOKEN"], "[redacted]");
    assert!(!everything(&run).contains(VALUE), "{:?}", run.command);
}

async fn a_secret_that_is_split_over_writes_is_masked_all_the_same(w: World) {
    let line = "printf hunter2-; sleep 0.05; printf correct-horse";
    let run = w.sandbox().secret("TOKEN", VALUE).sh(line).await.expect_exit(0);
    assert_eq!(run.out(), "[redacted]");
}

async fn live_output_is_never_altered(w: World) {
    let mut run = w.sandbox().secret("TOKEN", VALUE).start(["/bin/sh", "-c", "printf %s $TOKEN"]).await;
    let mut live = Vec::new();
    while let Some(event) = run.next_event().await {
        if let Event::Stdout(bytes) = event {
            live.extend_from_slice(&bytes);
        }
    }
    assert_eq!(live, VALUE.as_bytes());
    assert_eq!(Finished(run.wait().await.expect("the run ends")).out(), "[redacted]");
}

async fn an_artifact_that_holds_a_secret_is_left_out_and_said_so(w: World) {
    let line = "cd ../outputs; echo fine > fine; head -c 3000000 /dev/zero > leak; echo $TOKEN >> leak";
    let run = w.sandbox().secret("TOKEN", VALUE).sh(line).await.expect_exit(0);
    let kept: Vec<&str> = run.artifacts.iter().map(|artifact| artifact.path.as_str()).collect();
    assert_eq!(kept, ["outputs/fine"]);
    assert!(!w.engine().artifact_dir(run.run).join("outputs/leak").exists());
    let denial = run.denials.iter().find(|denial| denial.target.contains("outputs/leak"));
    assert_eq!(denial.map(|denial| denial.kind.as_str()), Some("artifact"), "{:?}", run.denials);
}

async fn a_secret_in_the_arguments_is_masked(w: World) {
    let run = w.sandbox().secret("TOKEN", VALUE).run(["echo", &format!("--password={VALUE}")]).await.expect_exit(0);
    assert!(!everything(&run).contains(VALUE), "{:?}", run.command);
}
