//! Flags of the verbs for volumes and projects.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const VOLUMES_EXAMPLES: &str = "\
Examples:
  glovebox volumes create data --size 2g
  glovebox run --volume data:/data -- sh -c 'date >> /data/log'
  glovebox run --volume data:/data:ro -- cat /data/log";

const PROJECTS_EXAMPLES: &str = "\
Examples:
  glovebox projects create report --type csv --type pdf
  glovebox projects files add report sales.csv
  glovebox run --project report -- ls /workspace/project_files
  glovebox run --project report -- sh -c 'echo kept > /workspace/project/notes'";

#[derive(Debug, Args)]
#[command(after_help = VOLUMES_EXAMPLES)]
pub(crate) struct VolumesArgs {
    #[command(subcommand)]
    pub(crate) verb: VolumesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumesVerb {
    /// Make a volume
    ///
    /// One that --volume names and that is not there is made too, with the default size.
    #[command(after_help = "Examples:\n  glovebox volumes create data --size 2g")]
    Create(CreateVolumeArgs),
    /// List the volumes
    #[command(after_help = "Examples:\n  glovebox volumes list")]
    List,
    /// Show a volume: its size, what it holds, and the sandboxes that have it
    #[command(after_help = "Examples:\n  glovebox volumes show data")]
    Show(VolumeArg),
    /// Remove volumes with all that is in them, unless a sandbox has them
    ///
    /// One that cannot be removed does not keep the others.
    #[command(after_help = "Examples:\n  glovebox volumes remove data logs")]
    Remove(VolumesArg),
}

#[derive(Debug, Args)]
pub(crate) struct CreateVolumeArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How much it may hold
    #[arg(long, value_name = "SIZE", default_value = "10g", allow_hyphen_values = true)]
    pub(crate) size: String,
}

#[derive(Debug, Args)]
pub(crate) struct VolumeArg {
    /// The volume
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct VolumesArg {
    /// The volumes
    #[arg(value_name = "NAME", num_args = 1.., required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = PROJECTS_EXAMPLES)]
pub(crate) struct ProjectsArgs {
    #[command(subcommand)]
    pub(crate) verb: ProjectsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectsVerb {
    /// Make a project
    #[command(after_help = "Examples:\n  glovebox projects create report --type csv --type pdf")]
    Create(CreateProjectArgs),
    /// List the projects
    #[command(after_help = "Examples:\n  glovebox projects list")]
    List,
    /// Show a project: its rules, its files and its sandboxes
    #[command(after_help = "Examples:\n  glovebox projects show report")]
    Show(ProjectArg),
    /// Remove projects with their files, volumes and caches, unless a sandbox is of them
    ///
    /// One that cannot be removed does not keep the others.
    #[command(after_help = "Examples:\n  glovebox projects remove report")]
    Remove(ProjectsArg),
    /// The files of a project, which its sandboxes see in /workspace/project_files
    Files(ProjectFilesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateProjectArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How much its volume may hold
    #[arg(long, value_name = "SIZE", default_value = "10g", allow_hyphen_values = true)]
    pub(crate) size: String,
    /// The largest file that it takes
    #[arg(long, value_name = "SIZE", default_value = "1g", allow_hyphen_values = true)]
    pub(crate) file_size: String,
    /// How many files it takes
    #[arg(long, value_name = "NUMBER", default_value = "10000", allow_hyphen_values = true)]
    pub(crate) file_count: String,
    /// Take only files with this ending, such as csv (repeatable) [default: any]
    #[arg(long = "type", value_name = "ENDING")]
    pub(crate) r#type: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectArg {
    /// The project
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectsArg {
    /// The projects
    #[arg(value_name = "NAME", num_args = 1.., required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectFilesArgs {
    #[command(subcommand)]
    pub(crate) verb: ProjectFilesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectFilesVerb {
    /// Add files of this machine, and print the name that each has in the project
    ///
    /// Names are made safe, and a name that is taken gets a number: report (2).pdf. Links, folders, pipes and devices are
    /// refused. Sandboxes that are alive see the files at once. One that is refused does not keep the others.
    #[command(after_help = "Examples:\n  glovebox projects files add report sales.csv costs.csv")]
    Add(AddFilesArgs),
    /// List the files
    #[command(after_help = "Examples:\n  glovebox projects files list report")]
    List(ProjectArg),
    /// Write a file to standard output, byte for byte
    #[command(after_help = "Examples:\n  glovebox projects files get report sales.csv > sales.csv")]
    Get(ProjectFileArg),
    /// Remove files
    #[command(after_help = "Examples:\n  glovebox projects files remove report sales.csv")]
    Remove(ProjectFilesArg),
}

#[derive(Debug, Args)]
pub(crate) struct AddFilesArgs {
    /// The project
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The files
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectFileArg {
    /// The project
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The file, by its name in the project
    #[arg(value_name = "FILE")]
    pub(crate) file: String,
}

#[derive(Debug, Args)]
pub(crate) struct ProjectFilesArg {
    /// The project
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The files, by their names in the project
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) files: Vec<String>,
}
