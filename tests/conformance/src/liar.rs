//! A backend whose guests do not tell the truth, as one would that hostile code has taken over.
//!
//! It makes no sandbox at all: the guest is a task of this process that speaks HTTP/2, or does not.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use glovebox_core::{
    Backend, ContentKeeper, Created, Evidence, Features, Found, GivenFile, GuestStream, Image, Isolation,
    LimitsInForce, LookFor, Outgrown, Result, RunId, SandboxId, SandboxSpec, UsageNow, WorkspaceLook,
};
use glovebox_proto::{Frame, FrameKind, RunInfo, Started, path};
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::file_lies::FileLie;

/// What a guest does in place of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It sends bytes that are not HTTP/2.
    Garbage,
    /// It answers with an error.
    Refusal,
    /// It sends a frame of a kind that does not exist.
    UnknownKind,
    /// It sends a frame that does not belong there.
    WrongKind,
    /// It announces a frame of four gigabytes.
    HugeFrame,
    /// It ends the stream within a frame.
    CutFrame,
    /// It sends a message that cannot be read.
    BadMessage,
    /// It sends something else after the start.
    Confused,
    /// It lists runs without an end.
    EndlessList,
    /// It goes away once the command has started, every time.
    GoesAway,
    /// It lies about files.
    File(FileLie),
}

impl Lie {
    /// All lies that break the rules of the channel when a run starts.
    pub(crate) const AT_START: [Lie; 7] =
        [Lie::Garbage, Lie::Refusal, Lie::UnknownKind, Lie::WrongKind, Lie::HugeFrame, Lie::CutFrame, Lie::BadMessage];
}

/// A backend whose guests lie.
pub(crate) struct Liar(pub(crate) Lie);

#[async_trait]
impl Backend for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn files_through_guest(&self) -> bool {
        matches!(self.0, Lie::File(_))
    }

    async fn probe(&self) -> Result<Features> {
        Ok(Features::default())
    }

    fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    async fn create(&self, _id: SandboxId, _spec: &SandboxSpec) -> Result<()> {
        Ok(())
    }

    async fn connect(&self, _id: SandboxId) -> Result<GuestStream> {
        let (host, guest) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(self.0, guest));
        Ok(Box::new(host))
    }

    async fn ready(&self, _id: SandboxId) -> Result<Created> {
        Ok(Created {
            isolation: Isolation::default(),
            limits: LimitsInForce::default(),
            places: Vec::new(),
            image: Image::Host,
            image_digest: None,
        })
    }

    async fn evidence(&self, _id: SandboxId, _run: Option<RunId>) -> Result<Evidence> {
        Ok(Evidence::unknown())
    }

    async fn usage(&self, _id: SandboxId) -> Result<UsageNow> {
        Ok(UsageNow::default())
    }

    async fn changes(
        &self,
        _id: SandboxId,
        _look_for: LookFor,
        _given: &[GivenFile],
        _keeper: Option<Arc<dyn ContentKeeper>>,
    ) -> Result<WorkspaceLook> {
        Ok(WorkspaceLook::default())
    }

    async fn watched_limit(&self, _id: SandboxId, _run: Option<RunId>) -> Outgrown {
        std::future::pending().await
    }

    async fn list(&self) -> Result<Vec<Found>> {
        Ok(Vec::new())
    }

    async fn end(&self, _id: SandboxId) -> Result<Option<Evidence>> {
        Ok(None)
    }

    async fn destroy(&self, _id: SandboxId) -> Result<()> {
        Ok(())
    }

    fn abandon(&self, _id: SandboxId) {}

    async fn collect_garbage(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

async fn serve(lie: Lie, mut stream: DuplexStream) {
    if lie == Lie::Garbage {
        // Whether the host is still there when the last byte is written is not the liar's concern.
        let _ = stream.write_all(&[0xa5; 4096]).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
        return;
    }
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let answering = tokio::spawn(answer(lie, request, respond));
        if lie == Lie::GoesAway {
            // What was said is sent, then the connection is cut.
            let _ = tokio::time::timeout(Duration::from_millis(20), connection.accept()).await;
            answering.abort();
            return;
        }
    }
}

async fn answer(lie: Lie, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    // What the host asks for is heard out, or the host would learn of the end before it has asked.
    let _ = body.data().await;
    let refuses = lie == Lie::Refusal;
    let status = if refuses { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    let response = Response::builder().status(status).body(()).expect("a status is a valid response");
    let mut out = respond.send_response(response, refuses)?;
    if head.uri.path() == path::RUNS {
        list(&mut out)?;
    } else if !refuses {
        for bytes in words(lie) {
            out.send_data(bytes, false)?;
        }
        if lie != Lie::GoesAway {
            out.send_data(Bytes::new(), true)?;
        }
    }
    // Until the host lets go.
    while let Some(Ok(_)) = body.data().await {}
    Ok(())
}

/// What a guest says when it is asked to start a command.
fn words(lie: Lie) -> Vec<Bytes> {
    let started = Frame::message(FrameKind::Started, &Started { pid: 3, took_ns: u64::MAX, session: None });
    match lie {
        Lie::UnknownKind => vec![Bytes::from_static(&[200, 0, 0, 0, 0])],
        Lie::WrongKind => vec![Frame::data(FrameKind::FileEnd, &[])],
        Lie::HugeFrame => vec![Bytes::from_static(&[17, 0xff, 0xff, 0xff, 0xff])],
        Lie::CutFrame => vec![started.slice(..3)],
        Lie::BadMessage => vec![Frame::data(FrameKind::Started, &[0xff; 9])],
        Lie::Confused => vec![started, Frame::data(FrameKind::Query, &[])],
        Lie::GoesAway => vec![started],
        Lie::File(lie) => lie.frames(),
        Lie::Garbage | Lie::Refusal | Lie::EndlessList => Vec::new(),
    }
}

/// Lists more runs than there can be, far beyond what fits a window: the host must stop it.
fn list(out: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    let run = Frame::message(FrameKind::RunInfo, &RunInfo { run: RunId::new().to_string(), ..RunInfo::default() });
    let many: Vec<u8> = run.iter().copied().cycle().take(run.len() * 100_000).collect();
    out.send_data(many.into(), false)?;
    out.send_data(Frame::data(FrameKind::Done, &[]), true)
}
