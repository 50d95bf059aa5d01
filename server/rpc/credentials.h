// Makes credentials to listen with or without TLS. Files are watched: certificates change without a
// restart.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace spaid::server {

struct TlsFiles {
  std::string certificate;  // PEM chain, leaf first; empty: no TLS
  std::string key;          // PEM
  std::string client_ca;    // PEM; set: a client's certificate must be signed by it (mTLS)

  bool any() const { return !certificate.empty() || !key.empty() || !client_ca.empty(); }
};

// Makes credentials for `files`; plaintext if none is set. Reads the files once, so that a missing,
// unreadable or broken one, or a key of another certificate, is reported now: INVALID_ARGUMENT/
// BAD_CERTIFICATE with the file and OpenSSL's text.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files);

// Returns when the first certificate of the PEM file expires, in seconds since 1970. Errors:
// INVALID_ARGUMENT/BAD_CERTIFICATE with the file and OpenSSL's text. `flag`: what names the file.
absl::StatusOr<int64_t> CertificateExpiry(absl::string_view flag, const std::string& file);

// Returns true for "localhost", 127.0.0.0/8, ::1 and unix: addresses, as they stand in HOST:PORT.
bool IsLoopback(const std::string& address);

}  // namespace spaid::server
