// Fills pages of lists within the bytes of a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/base/paging.h"
#include "server/rpc/server_service.h"

namespace spaid::server {

// The most bytes of a page: well under the limit of a message.
inline constexpr size_t kMaxListBytes = kMaxMessageBytes / 2;

// Fills `items` with to_proto(listed[i]), at least one, until the page is full, and sets
// `next_page_token`. `sequences`: one per element of `listed`; `next_token`: the token of the page
// behind them all.
template <class Listed, class Items, class ToProto>
void FillPage(const PageRequest& page, const Listed& listed, const std::vector<uint64_t>& sequences,
              const std::string& next_token, ToProto to_proto, Items* items,
              std::string* next_page_token) {
  constexpr size_t kOverhead = 8;  // upper bound per item
  *next_page_token = next_token;
  size_t bytes = 0;
  for (size_t i = 0; i < listed.size(); ++i) {
    auto item = to_proto(listed[i]);
    bytes += item.ByteSizeLong() + kOverhead;
    if (i > 0 && bytes > kMaxListBytes) {
      *next_page_token = PageToken(page.list, sequences[i - 1]);
      return;
    }
    *items->Add() = std::move(item);
  }
}

}  // namespace spaid::server
