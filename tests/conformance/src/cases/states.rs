//! The states of sandboxes that stay, whoever changes them and whoever is killed meanwhile.

use std::time::Duration;

use crate::{World, case::cases, soak, states};

cases!["states":
    random_lives_of_sandboxes_go_as_the_model_says needs(living),
];

/// The soak test lives longer.
const TIME: Duration = Duration::from_secs(6);

async fn random_lives_of_sandboxes_go_as_the_model_says(w: World) {
    let seed = soak::random_below(u64::MAX);
    let explored = states::explore(&w.data_dir(), seed, TIME, w.features().pause);
    let explored = explored.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(explored.steps > 5 && explored.races > 0, "{explored:?}");
}
