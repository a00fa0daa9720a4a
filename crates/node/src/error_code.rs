//! Error codes: the meaning of each error that a user can receive.
//!
//! The meaning of a code never changes. Its page, `docs/errors/<code>.md`, describes the error and
//! the remedy. The HTTP API responds with a code and its status; a failed effect of a built-in saga
//! records the code in its instance.

use http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal;)+) => {
        /// Error code for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name),+
        }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Code::$name),+];

            /// Returns the code, for example `OR0001`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $code),+
                }
            }

            /// Returns the HTTP status.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self {
                    $(Code::$name => StatusCode::$status),+
                }
            }

            /// Returns the short meaning.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Code::$name => $title),+
                }
            }
        }

        /// Returns the page of a code in Markdown.
        #[must_use]
        pub fn page(code: &str) -> Option<&'static str> {
            match code {
                $($code => Some(include_str!(concat!("../../../docs/errors/", $code, ".md"))),)+
                _ => None,
            }
        }
    };
}

codes! {
    /// The body is not valid JSON.
    InvalidJson = "OR0001", BAD_REQUEST, "Invalid JSON";
    /// The body is JSON with an unexpected structure.
    InvalidBody = "OR0002", UNPROCESSABLE_ENTITY, "Invalid request body";
    /// An event is invalid.
    InvalidEvent = "OR0003", UNPROCESSABLE_ENTITY, "Invalid event";
    /// The content type is not supported.
    UnsupportedMediaType = "OR0004", UNSUPPORTED_MEDIA_TYPE, "Unsupported media type";
    /// A body or a message exceeds the limit.
    TooLarge = "OR0005", PAYLOAD_TOO_LARGE, "Request body too large";
    /// The tenant header is malformed.
    BadTenant = "OR0006", BAD_REQUEST, "Invalid tenant id";
    /// The tenant is not accepted.
    UnknownTenant = "OR0007", FORBIDDEN, "Unknown tenant";
    /// A path or query parameter is invalid.
    BadParameter = "OR0008", BAD_REQUEST, "Invalid parameter";
    /// The route does not exist.
    RouteNotFound = "OR0009", NOT_FOUND, "Route not found";
    /// The route does not support the method.
    MethodNotAllowed = "OR0010", METHOD_NOT_ALLOWED, "Method not allowed";
    /// The instance does not exist.
    InstanceNotFound = "OR0011", NOT_FOUND, "Saga instance not found";
    /// The instance has another version than expected.
    VersionConflict = "OR0012", CONFLICT, "Version conflict";
    /// The instance status rejects a control request.
    InvalidStatus = "OR0013", CONFLICT, "Invalid instance status";
    /// The dead letter does not exist.
    DeadLetterNotFound = "OR0014", NOT_FOUND, "Dead letter not found";
    /// A control request was dead-lettered.
    DeadLettered = "OR0015", UNPROCESSABLE_ENTITY, "Input was dead-lettered";
    /// The definition does not exist.
    DefinitionNotFound = "OR0016", NOT_FOUND, "Definition not found";
    /// The definitions do not compile.
    InvalidDefinitions = "OR0017", UNPROCESSABLE_ENTITY, "Invalid definitions";
    /// The node is draining and accepts no new work.
    Draining = "OR0018", SERVICE_UNAVAILABLE, "Node is draining";
    /// The disk is full.
    InsufficientStorage = "OR0019", INSUFFICIENT_STORAGE, "Insufficient storage";
    /// A component is restarting.
    Unavailable = "OR0020", SERVICE_UNAVAILABLE, "Service temporarily unavailable";
    /// Internal error.
    Internal = "OR0021", INTERNAL_SERVER_ERROR, "Internal error";
    /// The table does not exist.
    TableNotFound = "OR0022", NOT_FOUND, "Table not found";
    /// The body did not arrive in time.
    BodyTimeout = "OR0023", REQUEST_TIMEOUT, "Request body timeout";
    /// The store is corrupt or the disk fails.
    StoreError = "OR0024", INTERNAL_SERVER_ERROR, "Store read error";
    /// The body ended early.
    IncompleteBody = "OR0025", BAD_REQUEST, "Incomplete request body";
    /// The task does not exist or is not open.
    TaskNotFound = "OR0026", NOT_FOUND, "Task not found or not open";
    /// Another user has claimed the task, or the action is not allowed.
    TaskConflict = "OR0027", CONFLICT, "Task conflict";
    /// The migration is blocked.
    MigrationBlocked = "OR0028", CONFLICT, "Migration blocked";
    /// No directory is configured for a reload.
    NothingToReload = "OR0029", CONFLICT, "Nothing to reload";
    /// A worker lost its claim.
    ClaimLost = "OR0030", CONFLICT, "Job claim lost";
    /// The stored data of the instance cannot be read.
    InstanceQuarantined = "OR0060", CONFLICT, "Instance quarantined";
    /// The change feed no longer has the changes after a cursor.
    CursorExpired = "OR0050", GONE, "Export cursor expired";
    /// The change feed is disabled.
    ExportDisabled = "OR0051", CONFLICT, "Export is disabled";
    /// A stream lost messages that a shard has not read.
    DataLoss = "OR0061", SERVICE_UNAVAILABLE, "Durable data is missing";
    /// A row of the tables does not match its checksum.
    DamagedTables = "OR0062", INTERNAL_SERVER_ERROR, "Damaged tables";
    /// The journal of a shard, or the event log, is corrupt.
    DamagedJournal = "OR0063", INTERNAL_SERVER_ERROR, "Damaged journal or event log";
    /// The stored data of the tenant exceed a quota.
    TenantStorageExceeded = "OR0065", INSUFFICIENT_STORAGE, "Storage quota of the tenant exceeded";
    /// The caller exceeds a quota.
    QuotaExceeded = "OR0031", TOO_MANY_REQUESTS, "Quota of the caller exceeded";
    /// The instance exists, and the request does not accept that.
    InstanceExists = "OR0032", CONFLICT, "Saga instance exists";
    /// The program did not start an instance.
    StartRejected = "OR0033", UNPROCESSABLE_ENTITY, "Start rejected";
    /// A context would have too many definitions, or too large ones.
    DefinitionLimit = "OR0130", UNPROCESSABLE_ENTITY, "Definition limit of the context exceeded";
    /// The schedule does not exist.
    ScheduleNotFound = "OR0034", NOT_FOUND, "Schedule not found";
    /// The specification of a schedule is invalid.
    InvalidSchedule = "OR0035", UNPROCESSABLE_ENTITY, "Invalid schedule";
    /// The wait that a request names has ended.
    WaitEnded = "OR0036", CONFLICT, "Wait ended";
    /// An idempotency key was used for another request.
    KeyReused = "OR0037", UNPROCESSABLE_ENTITY, "Idempotency key reused";
    /// The body does not have the declared content encoding.
    InvalidEncoding = "OR0038", BAD_REQUEST, "Invalid content encoding";
    /// The batch does not exist.
    BatchNotFound = "OR0080", NOT_FOUND, "Batch not found";
    /// Another batch has the id.
    BatchExists = "OR0081", CONFLICT, "Batch exists";
    /// The shadow does not exist.
    ShadowNotFound = "OR0082", NOT_FOUND, "Shadow not found";
    /// No shadow of the definition can start.
    ShadowRejected = "OR0083", CONFLICT, "Shadow rejected";
    /// The candidate of a shadow cannot be deployed as it is.
    PromotionRejected = "OR0084", CONFLICT, "Promotion rejected";
    /// The flow does not exist.
    FlowNotFound = "OR0090", NOT_FOUND, "Flow not found";
    /// Another flow has the id.
    FlowExists = "OR0091", CONFLICT, "Flow exists";
    /// The flow does not compile.
    InvalidFlow = "OR0092", UNPROCESSABLE_ENTITY, "Invalid flow";
    /// The credentials are missing.
    Unauthenticated = "OR0040", UNAUTHORIZED, "Authentication required";
    /// The credentials are invalid.
    InvalidCredentials = "OR0041", UNAUTHORIZED, "Invalid credentials";
    /// The role of the caller is insufficient.
    Forbidden = "OR0042", FORBIDDEN, "Insufficient role";
    /// The caller has no access to the tenant.
    TenantForbidden = "OR0043", FORBIDDEN, "Tenant not permitted";
    /// The host of the request does not name this node.
    HostNotAllowed = "OR0045", FORBIDDEN, "Host not allowed";
    /// A page of another site sent the request.
    CrossSite = "OR0046", FORBIDDEN, "Cross-site request";
    /// A log-in to the web UI was not completed.
    LoginFailed = "OR0047", UNAUTHORIZED, "Log-in failed";
    /// A client that is not a pod sent a forwarded request.
    UnverifiedPod = "OR0048", FORBIDDEN, "Unverified pod";
    /// The record of a change cannot be written.
    AuditUnavailable = "OR0049", SERVICE_UNAVAILABLE, "Audit trail unavailable";
    /// The webhook does not exist.
    WebhookNotFound = "OR0070", NOT_FOUND, "Webhook not found";
    /// The signature of a webhook is missing, invalid or expired.
    InvalidSignature = "OR0071", UNAUTHORIZED, "Invalid webhook signature";
    /// A webhook cannot be mapped to an event.
    WebhookNotMapped = "OR0072", BAD_REQUEST, "Webhook mapping failed";
    /// The signature of a request is invalid.
    InvalidRequestSignature = "OR0073", UNAUTHORIZED, "Invalid request signature";
    /// The signature of a request is outside its time window.
    SignatureTime = "OR0074", UNAUTHORIZED, "Signature outside its time window";
    /// The signature of a request was used before.
    SignatureReplayed = "OR0075", UNAUTHORIZED, "Signature used before";
    /// The key that signed a request is revoked or not valid now.
    InvalidKey = "OR0076", UNAUTHORIZED, "Key not valid";
    /// The tenant has no context record.
    ContextNotFound = "OR0100", NOT_FOUND, "Context not found";
    /// The request does not state the current revision.
    RevisionMismatch = "OR0101", PRECONDITION_FAILED, "Revision mismatch";
    /// The tenant has instances.
    ContextNotEmpty = "OR0102", CONFLICT, "Context not empty";
    /// The actor or its key does not exist.
    ActorNotFound = "OR0103", NOT_FOUND, "Actor not found";
    /// The actor or the key exists.
    ActorExists = "OR0104", CONFLICT, "Actor or key exists";
    /// The token of an invitation is invalid, expired or used.
    InvalidInvitation = "OR0105", UNAUTHORIZED, "Invalid invitation";
    /// The context requires signed events, and the event or the request has no signature.
    SignatureRequired = "OR0106", FORBIDDEN, "Signature required";
    /// The signature of an event is not accepted.
    InvalidEventSignature = "OR0107", UNPROCESSABLE_ENTITY, "Invalid event signature";
    /// Nothing proves that an actor holds the private key of a key that is added to it.
    KeyNotProven = "OR0108", UNPROCESSABLE_ENTITY, "Key not proven";
    /// The node of a context is neither this one nor a peer.
    UnknownNode = "OR0110", UNPROCESSABLE_ENTITY, "Unknown node";
    /// The context does not exist, or does not accept the message.
    MessageDenied = "OR0111", FORBIDDEN, "Message not permitted";
    /// The message does not exist.
    MessageNotFound = "OR0112", NOT_FOUND, "Message not found";
    /// Another message has the id.
    MessageExists = "OR0113", CONFLICT, "Message exists";
    /// A field of a message is invalid.
    InvalidMessage = "OR0114", UNPROCESSABLE_ENTITY, "Invalid message";
    /// A message or a report does not belong to the node that sends it, or to this node.
    MessageMisaddressed = "OR0115", FORBIDDEN, "Message of another node";
    /// The node cannot sign requests to other nodes.
    NoNodeIdentity = "OR0120", CONFLICT, "Node identity unavailable";
    /// The peer or its key does not exist.
    PeerNotFound = "OR0121", NOT_FOUND, "Peer not found";
    /// The name or a key of a peer is in use, or the configuration contains the peer.
    PeerConflict = "OR0122", CONFLICT, "Peer conflict";
    /// The document of a node is not accepted.
    InvalidNodeDocument = "OR0123", BAD_GATEWAY, "Invalid node document";
    /// A peer did not accept a request, or did not respond.
    PeerRequestFailed = "OR0124", BAD_GATEWAY, "Request to a peer failed";
    /// A backup is not possible on this node or at this time.
    BackupUnavailable = "OR0044", CONFLICT, "Backup unavailable";
}

impl Code {
    /// Returns whether the error passes: the same request can succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Draining | Self::Unavailable | Self::AuditUnavailable | Self::QuotaExceeded
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_error_code_has_a_page() {
        for code in Code::ALL {
            let page = page(code.as_str()).unwrap();
            assert!(
                page.starts_with(&format!("# {} · {}\n", code.as_str(), code.title())),
                "{page}"
            );
            let status = format!("HTTP status {}", code.status().as_u16());
            assert!(
                page.contains(&status),
                "{} does not say {status:?}",
                code.as_str()
            );
        }
        assert_eq!(page("OR9999"), None);
    }

    #[test]
    fn error_codes_are_unique() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
    }
}
