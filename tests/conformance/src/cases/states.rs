//! The states of sandboxes that stay, whoever changes them and whoever is killed meanwhile.

use std::time::Duration;

use crate::{
    World,
    case::cases,
    soak,
    states::{self, Act, Actor},
};

cases!["states":
    random_lives_of_sandboxes_go_as_the_model_says needs(living),
    a_sandbox_whose_keeper_was_killed_is_stopped_started_reset_and_destroyed needs(living),
];

/// The soak test lives longer.
const TIME: Duration = Duration::from_secs(6);

async fn random_lives_of_sandboxes_go_as_the_model_says(w: World) {
    let seed = soak::random_below(u64::MAX);
    let explored = states::explore(&w.data_dir(), seed, TIME, w.features().pause);
    let explored = explored.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(explored.steps > 5 && explored.races > 0, "{explored:?}");
}

async fn a_sandbox_whose_keeper_was_killed_is_stopped_started_reset_and_destroyed(w: World) {
    let mut maker = Actor::start(&w.data_dir()).expect("an actor");
    let mut other = Actor::start(&w.data_dir()).expect("an actor");
    for act in [Act::Stop, Act::Reset, Act::Destroy] {
        assert_eq!(maker.act("one", &Act::Create).expect("an answer"), Ok("done".to_owned()), "{act:?}");
        states::kill(maker.launcher).expect("its launcher is the keeper");
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
