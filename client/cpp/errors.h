// Converts gRPC's status to spaid::Error, and makes the client's own errors.
#pragma once

#include <string>
#include <string_view>

#include "spaid/client.h"

namespace grpc {
class Status;
}

namespace spaid::internal {

// Reasons of errors that arise in the client; those of the server are in proto/spaid/v1/README.md.
inline constexpr std::string_view kUnreachable = "UNREACHABLE";         // no connection was made
inline constexpr std::string_view kConnectionLost = "CONNECTION_LOST";  // it broke during a call
inline constexpr std::string_view kStopRequested = "STOP_REQUESTED";    // CallOptions::stop
inline constexpr std::string_view kTimeout = "TIMEOUT";                 // CallOptions::timeout
inline constexpr std::string_view kProtocolViolation = "PROTOCOL_VIOLATION";  // the server's fault
inline constexpr std::string_view kChecksumMismatch = "CHECKSUM_MISMATCH";    // in a received chunk
inline constexpr std::string_view kSizeMismatch = "SIZE_MISMATCH";         // spans that do not fit
inline constexpr std::string_view kBadOption = "BAD_OPTION";               // ClientOptions
inline constexpr std::string_view kOutOfMemory = "OUT_OF_MEMORY";          // Client::Allocate
inline constexpr std::string_view kUnreadableFile = "UNREADABLE_FILE";     // a PEM file
inline constexpr std::string_view kMatrixOverRanks = "MATRIX_OVER_RANKS";  // M is not sent
inline constexpr std::string_view kPartNeeded = "PART_NEEDED";             // M is no matrix

Error MakeError(Code code, std::string_view reason, std::string message, std::string field = {});

// Makes the error for a server that breaks its own contract.
Error ProtocolViolation(std::string_view what);

// Decodes a status that is not OK: reason, field, retry delay and metadata from
// `grpc-status-details-bin` if it is there; else with a text of our own for the cases that a user
// meets (nobody listens at `address`, the connection broke, the deadline passed).
Error FromStatus(const grpc::Status& status, std::string_view address);

}  // namespace spaid::internal
