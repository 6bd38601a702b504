//! What the protocol asks, and what is answered.

use std::sync::Arc;

use glovebox_core::ErrorCode as Code;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, Prompt, PromptArgument, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, ResourceUpdatedNotificationParam, Role, ServerCapabilities, ServerConfig,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
};

use tokio::task::JoinSet;

use crate::{
    answer,
    call::Call,
    conversation::Conversation,
    instructions, resources,
    subscriptions::{self, Subscriptions, Watched},
    tools,
};

/// The one prompt that there is.
const PROMPT: &str = "how_to_work_here";

/// The face of a conversation.
pub(crate) struct Server {
    talk: Arc<Conversation>,
    subscriptions: Subscriptions,
}

impl Server {
    pub(crate) fn new(talk: Arc<Conversation>) -> Self {
        Server { talk, subscriptions: Subscriptions::default() }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .build();
        let about = Implementation::new(&self.talk.settings.name, env!("CARGO_PKG_VERSION"))
            .with_title("Glovebox")
            .with_description("A sealed sandbox for code, commands and files");
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_instructions(instructions::of_server(&self.talk.settings))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(&self.talk.settings)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|entry| entry.tool(&self.talk.settings))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = tools::find(&request.name) else {
            let message = format!("there is no tool {:?}", crate::text::cut(&request.name, 80));
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, None));
        };
        let call = Call::new(&context, &self.talk.closing);
        let called = entry.call(&self.talk, &call, request.arguments.unwrap_or_default()).await;
        if let Err(error) = &called
            && [Code::SandboxLost, Code::ChannelViolation].contains(&error.code)
        {
            self.talk.look_after(&error.message).await;
        }
        let (note, secrets) = (self.talk.take_loss().await, self.talk.secrets());
        Ok(match called {
            Ok(answer) => answer.into_result(note, &secrets, context.protocol_version().as_ref()),
            Err(error) => answer::failed(&error, note, &secrets),
        }
        .into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.talk, cursor).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = resources::read(&self.talk, &request.uri).await?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    // The newest version of the protocol has `listen`; the older ones have this.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = Watched::begin(&self.talk, &request.uri).await.map_err(resources::fault)?;
        let subscription = self.subscriptions.begin(&request.uri, &self.talk.closing).map_err(resources::fault)?;
        let peer = context.peer;
        tokio::spawn(async move {
            let telling = async {
                while watched.changed().await {
                    let changed = ResourceUpdatedNotificationParam::new(request.uri.clone());
                    if peer.notify_resource_updated(changed).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = telling => {}
                () = subscription.ended() => {}
            }
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.end(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let wanted = requested.resource_subscriptions.iter().flatten();
        let known = wanted.filter(|uri| resources::path_of(uri).is_ok()).take(subscriptions::MOST);
        Some(SubscriptionFilter::builder().resource_subscriptions(known.cloned()).build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut telling = JoinSet::new();
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            // A file whose folder is not there cannot be watched, and nothing is told of it.
            let Ok(mut watched) = Watched::begin(&self.talk, uri).await else { continue };
            let (sink, uri) = (context.sink().clone(), uri.clone());
            telling.spawn(async move {
                while watched.changed().await && sink.notify_resource_updated(&uri).await.is_ok() {}
            });
        }
        // What is watched ends with the set.
        context.cancelled().await;
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let task = PromptArgument::new("task").with_description("What is to be done").with_required(false);
        let prompt = Prompt::new(PROMPT, Some("How to work in the sandbox, and its limits"), Some(vec![task]));
        Ok(ListPromptsResult::with_all_items(vec![prompt.with_title("How to work here")]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != PROMPT {
            return Err(ErrorData::invalid_params(format!("the one prompt is {PROMPT}"), None));
        }
        let task = request.arguments.as_ref().and_then(|given| given.get("task")?.as_str());
        let text = instructions::how_to_work_here(&self.talk.settings, task);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }
}
