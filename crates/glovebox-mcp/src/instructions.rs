//! What a model is told about the place it works in.

use glovebox_core::{Limits, Network, WorkspaceMode};

use crate::{Settings, text};

/// What every client hands to its model: what this is, and the rules that are not obvious.
pub(crate) fn of_server(settings: &Settings) -> String {
    let spec = &settings.spec;
    let writes_through = spec.workspace.as_ref().is_some_and(|workspace| workspace.mode == WorkspaceMode::ReadWrite);
    let mut lines = vec![
        format!(
            "A sealed Linux sandbox for this conversation. Run anything: programs in it cannot reach the user's machine{}.",
            if settings.sandbox.is_none() && writes_through { ", but for the working directory" } else { "" }
        ),
        "Working directory: /workspace/agent_workspace. Relative paths start there.".to_owned(),
        "Put results for the user into /workspace/outputs: they are kept when the sandbox is gone.".to_owned(),
        "run_code keeps state between calls (variables, imports); run_command runs one shell line in a fresh shell."
            .to_owned(),
        "Start servers and long jobs with start_process, then read_process. Read, edit and search files with the file tools."
            .to_owned(),
    ];
    if settings.sandbox.is_none() {
        lines.extend([network(spec.network), limits(&spec.limits)]);
    }
    lines.push(match (&settings.sandbox, &spec.workspace) {
        (Some(_), _) => "The sandbox was made by the user and stays after the conversation; usage tells its limits.".to_owned(),
        (None, Some(workspace)) => match workspace.mode {
            WorkspaceMode::Overlay => format!(
                "The working directory shows a folder of the user. What you write stays inside; list_changes shows it{}.",
                if settings.allow_apply { ", apply_changes brings it to the user's folder" } else { "" }
            ),
            WorkspaceMode::ReadOnly => {
                "The working directory shows a folder of the user, which can only be read. Write to /tmp or /workspace/outputs."
                    .to_owned()
            }
            WorkspaceMode::ReadWrite => {
                "The working directory IS a folder of the user: what you write there is written at once.".to_owned()
            }
        },
        (None, None) => "The sandbox is empty at first and is gone after the conversation.".to_owned(),
    });
    if !settings.roots.is_empty() {
        lines.push(format!("upload and download copy from and to: {}.", settings.roots.names().join(", ")));
    }
    lines.push(
        "An error says what to do behind \"hint:\". Some hints are for the user, who starts glovebox mcp.".to_owned(),
    );
    lines.join("\n")
}

fn network(network: Network) -> String {
    match network {
        Network::None => "There is no network: nothing can be downloaded or installed from outside.".to_owned(),
        Network::Full => "There is network access.".to_owned(),
    }
}

fn limits(limits: &Limits) -> String {
    format!(
        "Limits: {} memory, {} CPU, {} processes, {} disk, {:?} for each call.",
        text::size(limits.memory),
        limits.cpus,
        limits.pids,
        text::size(limits.disk),
        limits.timeout,
    )
}

/// The prompt that a user can choose.
pub(crate) fn how_to_work_here(settings: &Settings, task: Option<&str>) -> String {
    let task = task.map_or(String::new(), |task| format!("\n\nThe task: {task}"));
    format!(
        "You have a sandbox. {}\n\nWork in small steps: look at the files first, make one change, run it, read what it says. \
         Check results by running them, not by reading them. When you are done, say what is in /workspace/outputs.{task}",
        of_server(settings)
    )
}
