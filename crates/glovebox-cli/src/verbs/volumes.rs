//! `glovebox volumes`: named storage that outlives sandboxes.

use glovebox_core::{Result, VolumeName, parse_size};
use glovebox_engine::{Engine, VolumeStatus};
use glovebox_native::NativeBackend;
use jiff::Timestamp;
use serde_json::json;

use super::{
    living::{engine, making_engine},
    runs::ago,
    runtime,
    several::each,
};
use crate::{
    args::{CreateVolumeArgs, Globals, VolumesArgs, VolumesVerb},
    flags::Flags,
    report,
    table::table,
    terminal,
};

pub(crate) fn execute(
    globals: &Globals,
    args: &VolumesArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    match &args.verb {
        VolumesVerb::Create(args) => create(globals, args, flags),
        VolumesVerb::List => list(globals, &engine(globals, flags)?),
        VolumesVerb::Show(args) => {
            let status = engine(globals, flags)?.show_volume(&name(flags, &args.name)?)?;
            if globals.json {
                report::document(&status)?
            } else {
                report::print(&page(&status))?
            }
            Ok(0)
        }
        VolumesVerb::Remove(args) => {
            let engine = making_engine(globals, flags, backend)?;
            let remove = async |text: &String| {
                let name = name(flags, text)?;
                engine.remove_volume(&name).await.map(|()| name)
            };
            runtime()?.block_on(each(globals, &args.names, remove)).report(globals, "removed")
        }
    }
}

fn name(flags: &Flags, text: &str) -> Result<VolumeName> {
    VolumeName::parse(text).map_err(|forms| flags.not_a_name("volume", text, &forms))
}

fn create(globals: &Globals, args: &CreateVolumeArgs, flags: &Flags) -> Result<u8> {
    let (name, size) = (name(flags, &args.name)?, flags.check("size", &args.size, parse_size)?);
    let engine = engine(globals, flags)?;
    engine.create_volume(&name, size)?;
    if globals.json {
        report::document(&engine.show_volume(&name)?)?;
    } else {
        report::print(&format!("{name}\n"))?;
    }
    Ok(0)
}

fn list(globals: &Globals, engine: &Engine) -> Result<u8> {
    let volumes = engine.list_volumes()?;
    if globals.json {
        report::document(&json!({ "volumes": volumes }))?;
    } else if volumes.is_empty() {
        report::say("there is no volume; glovebox volumes create NAME makes one");
    } else {
        let now = Timestamp::now();
        let row = |volume: &VolumeStatus| {
            let sandboxes = if volume.sandboxes.is_empty() { "-".to_owned() } else { volume.sandboxes.join(", ") };
            [
                volume.name.to_string(),
                holds(volume),
                report::size(volume.size_bytes),
                ago(now, volume.created_at),
                sandboxes,
            ]
        };
        let rows: Vec<_> = volumes.iter().map(row).collect();
        let heading = ["VOLUME", "USED", "SIZE", "CREATED", "SANDBOXES"];
        report::print(&table(heading, &rows, terminal::output_columns()))?;
    }
    Ok(0)
}

fn holds(volume: &VolumeStatus) -> String {
    if volume.place.is_some() { "unknown".to_owned() } else { used(volume.used_bytes) }
}

/// What storage holds, for people.
pub(super) fn used(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "more than can be counted".to_owned(), report::size)
}

fn page(volume: &VolumeStatus) -> String {
    let mut text = format!(
        "{}\n  holds     {} of {}\n  created   {}\n",
        volume.name,
        holds(volume),
        report::size(volume.size_bytes),
        report::time(volume.created_at)
    );
    text.extend(volume.place.iter().map(|place| format!("  is at     {place}\n")));
    text.extend(volume.sandboxes.iter().map(|sandbox| format!("  sandbox   {sandbox}\n")));
    text
}
