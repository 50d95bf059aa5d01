// The ends of handles, by which routers before several daemons send every call about one matrix to
// the one that has it (proto/spaid/v1/README.md, "Several replicas").
#pragma once

#include <string>
#include <string_view>

namespace spaid::server {

// The affinity of what came without one; no router's.
inline constexpr std::string_view kNoAffinity = "none";

// Tells if `text` is an affinity that a client may send: 8 lower-case hex digits.
bool IsAffinity(std::string_view text);

// Returns the affinity that a handle ends in: "matrices/3f…-a1b2c3d4"; kNoAffinity where it ends in
// none.
std::string_view AffinityOf(std::string_view handle);

// Returns a fresh handle, with 128 unguessable bits: `prefix` "matrices/". Thread-safe.
std::string NewHandle(std::string_view prefix, std::string_view affinity);

// Returns the key of content under an affinity: content that comes under another one is stored
// again, for a handle ends in what its own upload carried.
std::string KeyUnder(std::string key, std::string_view affinity);

}  // namespace spaid::server
