// Every machine-readable reason that leaves the daemon, declared once. proto/spaid/v1/README.md
// lists them for clients. Reasons that the kernels make ("NOT_SQUARE", "BAD_POINTERS", …) pass
// through server/engine unchanged; those that the server also makes itself are here too.
#pragma once

#include <string_view>

namespace spaid::server {

inline constexpr std::string_view kErrorDomain = "spaid";

namespace reason {

// INVALID_ARGUMENT: the request.
inline constexpr std::string_view kUnknownEnum = "UNKNOWN_ENUM";
inline constexpr std::string_view kMissingField = "MISSING_FIELD";
inline constexpr std::string_view kBadPageSize = "BAD_PAGE_SIZE";
inline constexpr std::string_view kBadPageToken = "BAD_PAGE_TOKEN";
inline constexpr std::string_view kBadLimit = "BAD_LIMIT";  // JobLimits
inline constexpr std::string_view kBadLabel = "BAD_LABEL";
inline constexpr std::string_view kBadSize = "BAD_SIZE";  // n, nnz of a header
inline constexpr std::string_view kUnexpectedMessage = "UNEXPECTED_MESSAGE";
// INVALID_ARGUMENT: specs and solve options (ranges: the kernels).
inline constexpr std::string_view kBadKeepTau = "BAD_KEEP_TAU";
inline constexpr std::string_view kBadAmgOption = "BAD_AMG_OPTION";  // any of AmgSpec
inline constexpr std::string_view kBadCoordinates = "BAD_COORDINATES";
inline constexpr std::string_view kBadNearNullSpace = "BAD_NEAR_NULL_SPACE";
inline constexpr std::string_view kBadFsaiOption = "BAD_FSAI_OPTION";  // any of FsaiSpec
inline constexpr std::string_view kBadRhsCount = "BAD_RHS_COUNT";
inline constexpr std::string_view kBadNullSpace = "BAD_NULL_SPACE";
inline constexpr std::string_view kBadReuse = "BAD_REUSE";
inline constexpr std::string_view kRhsLengthMismatch = "RHS_LENGTH_MISMATCH";
inline constexpr std::string_view kPatternSizeMismatch = "PATTERN_SIZE_MISMATCH";
inline constexpr std::string_view kPreconditionerSizeMismatch = "PRECONDITIONER_SIZE_MISMATCH";
inline constexpr std::string_view kNotASolve = "NOT_A_SOLVE";   // a build has no solution
inline constexpr std::string_view kPartNeeded = "PART_NEEDED";  // of an M that is no matrix
inline constexpr std::string_view kUnknownPart = "UNKNOWN_PART";
inline constexpr std::string_view kNothingToBuild = "NOTHING_TO_BUILD";  // ENGINE_KIND_NONE
// INVALID_ARGUMENT: matrices and arrays on the wire.
inline constexpr std::string_view kNotSquare = "NOT_SQUARE";
inline constexpr std::string_view kChecksumMismatch = "CHECKSUM_MISMATCH";
inline constexpr std::string_view kDigestMismatch = "DIGEST_MISMATCH";
inline constexpr std::string_view kBadDigest = "BAD_DIGEST";
inline constexpr std::string_view kChunkOutOfOrder = "CHUNK_OUT_OF_ORDER";
inline constexpr std::string_view kChunkBeyondEnd = "CHUNK_BEYOND_END";
inline constexpr std::string_view kChunkNotWhole = "CHUNK_NOT_WHOLE";
inline constexpr std::string_view kArrayIncomplete = "ARRAY_INCOMPLETE";
inline constexpr std::string_view kBadSegment = "BAD_SEGMENT";  // memory of a local client
// FAILED_PRECONDITION.
inline constexpr std::string_view kValuesNeeded = "VALUES_NEEDED";  // it is a pattern alone
inline constexpr std::string_view kNotSymmetric = "NOT_SYMMETRIC";  // FSAI, CG
inline constexpr std::string_view kNotPositiveDefinite = "NOT_POSITIVE_DEFINITE";  // FSAI
inline constexpr std::string_view kFloat32Overflow = "FLOAT32_OVERFLOW";
// RESOURCE_EXHAUSTED.
inline constexpr std::string_view kMatrixTooLarge = "MATRIX_TOO_LARGE";
inline constexpr std::string_view kStoreFull = "STORE_FULL";
inline constexpr std::string_view kBufferFull = "BUFFER_FULL";
inline constexpr std::string_view kRhsTooLarge = "RHS_TOO_LARGE";
inline constexpr std::string_view kBuildTooLarge = "BUILD_TOO_LARGE";
inline constexpr std::string_view kSolveTooLarge = "SOLVE_TOO_LARGE";
inline constexpr std::string_view kQueueFull = "QUEUE_FULL";
inline constexpr std::string_view kOutOfMemory = "OUT_OF_MEMORY";
inline constexpr std::string_view kSegmentsFull = "SEGMENTS_FULL";  // memory of local clients
inline constexpr std::string_view kTooManyConnections = "TOO_MANY_CONNECTIONS";  // local ones
inline constexpr std::string_view kTooManyStreams = "TOO_MANY_STREAMS";
inline constexpr std::string_view kTooManyDetached = "TOO_MANY_DETACHED";  // jobs of one tenant
// NOT_FOUND.
inline constexpr std::string_view kHandleUnknown = "HANDLE_UNKNOWN";
inline constexpr std::string_view kHandleEvicted = "HANDLE_EVICTED";
inline constexpr std::string_view kSolutionGone = "SOLUTION_GONE";
inline constexpr std::string_view kLeaseUnknown = "LEASE_UNKNOWN";
// PERMISSION_DENIED.
inline constexpr std::string_view kNotAdministrator = "NOT_ADMINISTRATOR";
inline constexpr std::string_view kPeerRefused = "PEER_REFUSED";  // the user of a local process
// CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, UNAUTHENTICATED, UNIMPLEMENTED, INTERNAL.
inline constexpr std::string_view kCancelled = "CANCELLED";  // CancelJob
inline constexpr std::string_view kAbandoned = "ABANDONED";  // the last waiting client left
inline constexpr std::string_view kStalledReader = "STALLED_READER";
inline constexpr std::string_view kMaxQueue = "MAX_QUEUE";
inline constexpr std::string_view kMaxRun = "MAX_RUN";
inline constexpr std::string_view kDeadline = "DEADLINE";
inline constexpr std::string_view kDeadlineInfeasible = "DEADLINE_INFEASIBLE";  // at admission
inline constexpr std::string_view kDraining = "DRAINING";
inline constexpr std::string_view kBadToken = "BAD_TOKEN";
inline constexpr std::string_view kNoCredentials = "NO_CREDENTIALS";  // where they are wanted
inline constexpr std::string_view kBadTenant = "BAD_TENANT";
inline constexpr std::string_view kBadAffinity = "BAD_AFFINITY";  // INVALID_ARGUMENT
inline constexpr std::string_view kStalledSender = "STALLED_SENDER";
inline constexpr std::string_view kUnknownMethod = "UNKNOWN_METHOD";
inline constexpr std::string_view kInternal = "INTERNAL";
// UNAVAILABLE: --spill-dir.
inline constexpr std::string_view kNotDurable = "NOT_DURABLE";         // a promise cannot be kept
inline constexpr std::string_view kLostByRestart = "LOST_BY_RESTART";  // what a job needed
// UNAVAILABLE and RESOURCE_EXHAUSTED of devices; the kernels make them too.
inline constexpr std::string_view kDeviceLost = "DEVICE_LOST";
inline constexpr std::string_view kMatrixOverRanks = "MATRIX_OVER_RANKS";  // FAILED_PRECONDITION
inline constexpr std::string_view kRanksNeeded = "RANKS_NEEDED";           // the same
inline constexpr std::string_view kDeviceOutOfMemory = "DEVICE_OUT_OF_MEMORY";

// On stderr, never on the wire: at the start, and as last words.
inline constexpr std::string_view kBadFlag = "BAD_FLAG";
inline constexpr std::string_view kDeviceUnavailable = "DEVICE_UNAVAILABLE";
inline constexpr std::string_view kBadCertificate = "BAD_CERTIFICATE";
inline constexpr std::string_view kBadTokensFile = "BAD_TOKENS_FILE";
inline constexpr std::string_view kBadSpillFolder = "BAD_SPILL_FOLDER";
inline constexpr std::string_view kCannotListen = "CANNOT_LISTEN";
inline constexpr std::string_view kRankLost = "RANK_LOST";
inline constexpr std::string_view kDeaf = "DEAF";  // the daemon's own port answers no more

}  // namespace reason
}  // namespace spaid::server
