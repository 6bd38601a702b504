//! Images that have volumes of their own, links where something of ours is mounted, or labels that imitate ours, through the product.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{
    command::{DOCKER, document, folder, glovebox},
    daemon::Daemon,
    images,
};

/// Makes an image of the test's own from lines of a Dockerfile, and gives its name.
fn image(daemon: &Daemon, folder: &Path, name: &str, lines: &str) -> Result<String> {
    let context = folder.join(name);
    fs::create_dir_all(&context)?;
    let from = images::reference("busybox");
    fs::write(context.join("Dockerfile"), format!("FROM {from}\nUSER root\nENTRYPOINT []\n{lines}\n"))?;
    let reference = images::reference(&format!("volumes-{name}"));
    // The older builder needs no plugin, and none of them a network.
    let context = context.to_str().context("the folder is no text")?;
    daemon.docker(&["build", "--quiet", "--network", "none", "--tag", &reference, context])?;
    Ok(reference)
}

/// The volumes of the engine.
fn volumes(daemon: &Daemon) -> Result<usize> {
    Ok(daemon.docker(&["volume", "ls", "--quiet"])?.lines().count())
}

/// Tries to write at each of these places, and says where that worked. The first shows that it does where it may.
const TRY: &str = "for place in /tmp /workspace/v /home/user/v /tmp/v /data; do \
                   dd if=/dev/zero of=$place/x bs=1024 count=64 2> /dev/null && echo wrote $place; rm -f $place/x; done; cat /data/kept";

pub(super) fn of_an_image(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "volumes")?;
    let made = "RUN mkdir /data && echo kept > /data/kept && chmod 777 /data";
    let lines = format!("{made}\nVOLUME [\"/workspace/v\", \"/home/user/v\", \"/tmp/v\", \"/tmp\", \"/data\"]");
    let image = image(daemon, &folder, "several", &lines)?;
    let before = volumes(daemon)?;
    let held = try_to_write(daemon, &folder, &image);
    let after = volumes(daemon);
    daemon.docker(&["image", "rm", &image])?;
    held?;
    let after = after?;
    ensure!(after == before, "there were {before} volumes, and now there are {after}");
    Ok(())
}

fn try_to_write(daemon: &Daemon, folder: &Path, image: &str) -> Result<()> {
    let wanted = "wrote /tmp\nkept\n";
    for user in ["1000", "root"] {
        let argv = ["run", DOCKER[0], DOCKER[1], "--image", image, "--user", user, "--", "sh", "-c", TRY];
        let ran = glovebox(daemon, folder, &argv)?;
        ensure!(ran.stdout == wanted.as_bytes(), "a run of the user {user} says {ran:?}");
    }
    document(daemon, folder, &["create", "--name", "volumes", DOCKER[0], DOCKER[1], "--image", image])?;
    let kept = glovebox(daemon, folder, &["exec", "volumes", "--", "sh", "-c", "echo stays > /home/user/file"]);
    let again = document(daemon, folder, &["stop", "volumes"])
        .and_then(|_| document(daemon, folder, &["start", "volumes"]))
        .and_then(|_| glovebox(daemon, folder, &["exec", "volumes", "--", "cat", "/home/user/file"]));
    let tried = glovebox(daemon, folder, &["exec", "volumes", "--", "sh", "-c", TRY]);
    document(daemon, folder, &["destroy", "volumes"])?;
    ensure!(kept?.status.success() && again?.stdout == b"stays\n", "what is in volumes of ours does not stay");
    let tried = tried?;
    ensure!(tried.stdout == wanted.as_bytes(), "one that stays says {tried:?}");
    Ok(())
}

/// Lines of images that are refused, and what is said of them.
const ASTRAY: [(&str, &str, &str); 3] = [
    ("link", "RUN ln -s /workspace /x\nVOLUME /x", "a volume of the image's at"),
    ("folder", "VOLUME /workspace/agent_workspace", "a volume of its own at /workspace/agent_workspace"),
    ("channel", "RUN mkdir /.glovebox && ln -s /tmp/ch /.glovebox/channel", "without a link of the image's"),
];

pub(super) fn led_astray(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "astray")?;
    for (name, lines, said) in ASTRAY {
        let image = image(daemon, &folder, name, lines)?;
        let run = ["run", DOCKER[0], DOCKER[1], "--image", &image, "--user", "root", "--", "true"];
        let create = ["create", "--name", name, DOCKER[0], DOCKER[1], "--image", &image, "--user", "root"];
        let refused = [glovebox(daemon, &folder, &run), glovebox(daemon, &folder, &create)];
        daemon.docker(&["image", "rm", &image])?;
        for refused in refused {
            let refused = refused?;
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            ensure!(refused.status.code() == Some(125) && told.contains(said), "of the image {name} it says {told}");
        }
    }
    Ok(())
}

/// The labels of a sandbox that ended by itself, whose record would be in a folder.
fn imitating(folder: &Path) -> String {
    let labels = [
        ("managed", "true"),
        ("sandbox", "sb_01M7H8VXJZE6JBTYYY1PZ2NDJ0"),
        ("living", "true"),
        ("expires", "1"),
        ("store", folder.to_str().unwrap_or_default()),
    ];
    labels.iter().map(|(name, value)| format!("LABEL glovebox.{name}={value}\n")).collect()
}

pub(super) fn labels_of_an_image(daemon: &Daemon) -> Result<()> {
    let folder = folder(daemon, "labels")?;
    let precious = folder.join("precious/files");
    fs::create_dir_all(&precious)?;
    let image = image(daemon, &folder, "labels", &imitating(&precious))?;
    // It ends as the guest of a sandbox does that was not used for a while.
    let ended = daemon.docker(&["run", "--name", "imitation", &image, "sh", "-c", "exit 10"]);
    let run = glovebox(daemon, &folder, &["run", DOCKER[0], DOCKER[1], "--image", &image, "--", "sleep", "1"]);
    let collected = glovebox(daemon, &folder, &["gc", DOCKER[0], DOCKER[1]]);
    let is_left = daemon.docker(&["ps", "--all", "--quiet", "--filter", "name=imitation"]);
    daemon.docker(&["rm", "imitation"])?;
    daemon.docker(&["image", "rm", &image])?;
    ensure!(ended.is_err(), "the imitation did not end with 10");
    let (run, collected) = (run?, collected?);
    ensure!(run.status.success(), "its own labels ended a run: {run:?}");
    ensure!(collected.status.success(), "the collection says {collected:?}");
    ensure!(precious.is_dir() && !precious.with_file_name("ended.json").exists(), "a label reached a folder");
    ensure!(!is_left?.trim().is_empty(), "a container that is not ours was removed");
    Ok(())
}
