#include "server/rpc/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

// How often changed files are looked for.
constexpr unsigned kRefreshSeconds = 1;

absl::Status Bad(absl::string_view flag, const std::string& file, absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadCertificate,
                   absl::StrCat("--", flag, "=", file, ": ", what))
      .Field(std::string(flag));
}

std::string OpenSslSays() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  const char* text = error == 0 ? nullptr : ERR_reason_error_string(error);
  return text == nullptr ? "no PEM data" : text;
}

absl::StatusOr<std::string> ReadFile(absl::string_view flag, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return Bad(flag, file, absl::StrCat("cannot be read: ", std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || text.empty()) return Bad(flag, file, "is empty or cannot be read");
  return text;
}

absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flag, file));
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return Bad(flag, file, absl::StrCat("is not a PEM certificate (", OpenSslSays(), ")"));
  }
  return certificate;
}

int NoPassphrase(char*, int, int, void*) { return 0; }

absl::StatusOr<PrivateKey> ReadKey(absl::string_view flag, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flag, file));
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Bad(flag, file,
               absl::StrCat("is not an unencrypted PEM private key (", OpenSslSays(), ")"));
  }
  return key;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files) {
  if (!files.any()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty() || files.key.empty()) {
    return Bad(files.certificate.empty() ? "tls-cert" : "tls-key", "",
               "TLS needs both --tls-cert and --tls-key");
  }
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("tls-cert", files.certificate));
  ASSIGN_OR_RETURN(const PrivateKey key, ReadKey("tls-key", files.key));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return Bad("tls-key", files.key,
               absl::StrCat("is not the key of the certificate in ", files.certificate));
  }
  if (!files.client_ca.empty()) {
    RETURN_IF_ERROR(ReadCertificate("tls-client-ca", files.client_ca).status());
  }

  using grpc::experimental::FileWatcherCertificateProvider;
  auto provider = std::make_shared<FileWatcherCertificateProvider>(
      files.key, files.certificate, files.client_ca, kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    // Who shows none is told so by a status, or has a token; health is for everybody.
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<int64_t> CertificateExpiry(absl::string_view flag, const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flag, file));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  int64_t first = std::numeric_limits<int64_t>::max();
  while (const Certificate certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    std::tm ends{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &ends) != 1) {
      return Bad(flag, file,
                 absl::StrCat("has a certificate without an end (", OpenSslSays(), ")"));
    }
    first = std::min<int64_t>(first, timegm(&ends));
  }
  if (first == std::numeric_limits<int64_t>::max()) {
    return Bad(flag, file, absl::StrCat("is not a PEM certificate (", OpenSslSays(), ")"));
  }
  ERR_clear_error();  // that there is no further one
  return first;
}

bool IsLoopback(const std::string& address) {
  if (absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:"))
    return true;
  const absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  // Digits and dots only: 127.evil.example is a name like any other.
  const bool numeric = host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return host == "localhost" || (numeric && absl::StartsWith(host, "127.")) || host == "[::1]";
}

}  // namespace spaid::server
