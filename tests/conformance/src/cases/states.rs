//! The states of sandboxes that stay, whoever changes them and whoever is killed meanwhile.

use std::time::Duration;

use glovebox_core::SandboxName;
use glovebox_engine::NewSandbox;

use super::living::{create, request, run};
use crate::{
    World,
    case::cases,
    reading::read_until,
    soak,
    states::{self, Act, Actor},
};

cases!["states":
    random_lives_of_sandboxes_go_as_the_model_says needs(living),
    a_sandbox_whose_keeper_was_killed_is_stopped_started_reset_and_destroyed needs(living),
    a_sandbox_that_another_process_stopped_and_started_is_known_anew needs(living),
];

/// The soak test lives longer.
const TIME: Duration = Duration::from_secs(6);

async fn random_lives_of_sandboxes_go_as_the_model_says(w: World) {
    let seed = soak::random_below(u64::MAX);
    let explored = states::explore(&w.data_dir(), seed, TIME, w.features());
    let explored = explored.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(explored.steps > 5 && explored.races > 0, "{explored:?}");
}

async fn a_sandbox_whose_keeper_was_killed_is_stopped_started_reset_and_destroyed(w: World) {
    let mut maker = Actor::start(&w.data_dir()).expect("an actor");
    let mut other = Actor::start(&w.data_dir()).expect("an actor");
    for act in [Act::Stop, Act::Reset, Act::Destroy] {
        assert_eq!(maker.act("one", &Act::Create).expect("an answer"), Ok("done".to_owned()), "{act:?}");
        match maker.launcher {
            // Nobody keeps those of other backends, and who made one may die.
            0 => maker.kill(),
            launcher => states::kill(launcher).expect("its launcher is the keeper"),
        }
        // Whoever comes next has another launcher, which becomes the keeper.
        assert!(other.act("one", &Act::Exec).expect("an answer").is_ok(), "{act:?}");
        assert_eq!(other.act("one", &act).expect("an answer"), Ok("done".to_owned()));
        if !matches!(act, Act::Destroy) {
            assert_eq!(other.act("one", &Act::Start).expect("an answer"), Ok("done".to_owned()), "{act:?}");
            assert_eq!(other.act("one", &Act::Destroy).expect("an answer"), Ok("done".to_owned()), "{act:?}");
        }
        maker = Actor::start(&w.data_dir()).expect("an actor");
    }
}

async fn a_sandbox_that_another_process_stopped_and_started_is_known_anew(w: World) {
    let name = "one";
    let mut other = Actor::start(&w.data_dir()).expect("an actor");
    let new = NewSandbox { name: Some(SandboxName::parse(name).expect("a name")), ..NewSandbox::default() };
    let before = create(&w, new).await;
    run(&before, "true").await.expect_exit(0);
    for act in [Act::Stop, Act::Start] {
        assert_eq!(other.act(name, &act).expect("an answer"), Ok("done".to_owned()), "{act:?}");
    }
    // Who held it all the time and who comes now work in it, and what runs there now is counted.
    run(&before, "echo works").await.expect_out("works\n");
    let after = w.engine().open(name).await.expect("it can be opened");
    for sandbox in [&after, &before] {
        let mut going = sandbox.start(request("echo up; exec sleep 100")).await.expect("it starts");
        read_until(&mut going, "up\n").await;
        let usage = w.engine().usage(name).await.expect("it can be looked at");
        // A kernel of its own has more.
        assert!(usage.processes > 0 || !w.features().counters, "{usage:?}");
        going.cancel();
        let result = going.wait().await.expect("a result");
        let is_counted = result.usage.memory_peak_bytes > 0 || !w.features().counters;
        assert!(is_counted && result.warnings.is_empty(), "{result:?}");
    }
    w.engine().stop(name).await.expect("it can be stopped");
    assert_eq!(other.act(name, &Act::Show).expect("an answer"), Ok("stopped".to_owned()));
    drop((before, after));
    assert_eq!(other.act(name, &Act::Destroy).expect("an answer"), Ok("done".to_owned()));
}
