#include "tests/oracle/multigrid.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace spaid::oracle {
namespace {

std::vector<int64_t> NeighboursOf(const Dense& weight, int64_t i) {
  std::vector<int64_t> of;
  for (int64_t j = 0; j < weight.cols; ++j) {
    if (weight(i, j) > 0) of.push_back(j);
  }
  return of;
}

}  // namespace

Dense Couplings(const Dense& a, int block) {
  const auto sign = [&](int64_t i) { return a(i, i) > 0 ? 1.0 : -1.0; };
  const auto scaled = [&](int64_t i, int64_t j) {
    return a(i, j) / (std::sqrt(std::fabs(a(i, i))) * std::sqrt(std::fabs(a(j, j))));
  };
  const int64_t nodes = a.rows / block;
  Dense s(nodes, nodes);
  for (int64_t i = 0; i < nodes; ++i) {
    for (int64_t j = 0; j < nodes; ++j) {
      if (i == j) continue;
      if (block == 1) {
        s(i, j) = -0.5 * (sign(i) * scaled(i, j) + sign(j) * scaled(j, i));
        continue;
      }
      double here = 0, there = 0;
      for (int64_t k = 0; k < block; ++k) {
        for (int64_t l = 0; l < block; ++l) {
          here += std::pow(scaled(i * block + k, j * block + l), 2);
          there += std::pow(scaled(j * block + k, i * block + l), 2);
        }
      }
      s(i, j) = 0.5 * (std::sqrt(here) + std::sqrt(there));
    }
  }
  return s;
}

Strong FindStrong(const Dense& s, double theta) {
  const int64_t n = s.rows;
  Vector most(static_cast<size_t>(n), 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j)
      most[static_cast<size_t>(i)] = std::max(most[static_cast<size_t>(i)], s(i, j));
  }
  const auto enough = [&](int64_t i, int64_t j) {
    return s(i, j) > 0 && s(i, j) >= theta * (1 - 1e-9) * most[static_cast<size_t>(i)];
  };
  Strong strong{.weight = Dense(n, n), .leader = std::vector<int64_t>(static_cast<size_t>(n), -1)};
  for (int64_t i = 0; i < n; ++i) {
    double leading = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (i == j || !enough(i, j)) continue;
      if (enough(j, i)) {
        strong.weight(i, j) = s(i, j);
      } else if (s(i, j) > leading) {
        leading = s(i, j);
        strong.leader[static_cast<size_t>(i)] = j;
      }
    }
  }
  return strong;
}

std::vector<int64_t> GreedyRoots(const Dense& weight, const Key& key,
                                 const std::vector<bool>& takes_part,
                                 const std::vector<bool>& candidate) {
  const auto n = static_cast<size_t>(weight.rows);
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  std::vector<bool> root(n, false);
  std::vector<int64_t> root_of(n, -1);
  for (const int64_t i : order) {
    if (!candidate[static_cast<size_t>(i)] || !takes_part[static_cast<size_t>(i)]) continue;
    bool near = false;
    for (const int64_t j : NeighboursOf(weight, i)) {
      if (!takes_part[static_cast<size_t>(j)]) continue;
      near = near || root[static_cast<size_t>(j)];
      for (const int64_t k : NeighboursOf(weight, j)) {
        near = near || (takes_part[static_cast<size_t>(k)] && root[static_cast<size_t>(k)]);
      }
    }
    if (near) continue;
    root[static_cast<size_t>(i)] = true;
  }
  for (size_t i = 0; i < n; ++i) {
    if (!root[i]) continue;
    root_of[i] = static_cast<int64_t>(i);
    for (const int64_t j : NeighboursOf(weight, static_cast<int64_t>(i))) {
      if (takes_part[static_cast<size_t>(j)])
        root_of[static_cast<size_t>(j)] = static_cast<int64_t>(i);
    }
  }
  return root_of;
}

std::vector<int64_t> Aggregate(const Strong& strong, const Key& key) {
  const auto n = static_cast<size_t>(strong.weight.rows);
  const auto neighbours = [&](size_t i) {
    return NeighboursOf(strong.weight, static_cast<int64_t>(i));
  };
  std::vector<bool> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = !neighbours(i).empty();
  std::vector<int64_t> root_of = GreedyRoots(strong.weight, key, all, all);

  std::vector<bool> left(n), candidate(n);
  for (size_t i = 0; i < n; ++i) left[i] = all[i] && root_of[i] < 0;
  for (size_t i = 0; i < n; ++i) {
    const auto of = neighbours(i);
    const auto too = std::count_if(of.begin(), of.end(),
                                   [&](int64_t j) { return left[static_cast<size_t>(j)]; });
    candidate[i] = left[i] && too >= 2 && 3 * too >= 2 * static_cast<int64_t>(of.size());
  }
  const auto second = GreedyRoots(strong.weight, key, left, candidate);
  for (size_t i = 0; i < n; ++i) {
    if (second[i] >= 0) root_of[i] = second[i];
  }

  std::vector<int64_t> joined = root_of;
  for (size_t i = 0; i < n; ++i) {
    if (root_of[i] >= 0) continue;
    std::map<int64_t, double> sums;
    for (const int64_t j : neighbours(i)) {
      if (root_of[static_cast<size_t>(j)] >= 0) {
        sums[root_of[static_cast<size_t>(j)]] += strong.weight(static_cast<int64_t>(i), j);
      }
    }
    double most = 0;
    for (const auto& [root, sum] : sums) {
      if (joined[i] < 0 || sum > most) joined[i] = root, most = sum;
    }
  }
  std::vector<int64_t> last = joined;
  for (size_t i = 0; i < n; ++i) {
    if (joined[i] < 0 && strong.leader[i] >= 0)
      last[i] = joined[static_cast<size_t>(strong.leader[i])];
  }
  std::map<int64_t, int64_t> number;
  for (int64_t& root : last) {
    if (root < 0) continue;
    root = number.try_emplace(root, static_cast<int64_t>(number.size())).first->second;
  }
  return last;
}

Dense Dependences(const Dense& s, double theta) {
  Dense depends(s.rows, s.cols);
  for (int64_t i = 0; i < s.rows; ++i) {
    double most = 0;
    for (int64_t j = 0; j < s.cols; ++j) most = std::max(most, i == j ? 0 : s(i, j));
    for (int64_t j = 0; j < s.cols; ++j) {
      depends(i, j) = i != j && s(i, j) > 0 && s(i, j) >= theta * (1 - 1e-9) * most;
    }
  }
  return depends;
}

std::vector<bool> SplitPmis(const Dense& depends, const Key& key) {
  const auto n = static_cast<size_t>(depends.rows);
  std::vector<int64_t> order;
  for (int64_t j = 0; j < depends.cols; ++j) {
    for (int64_t i = 0; i < depends.rows; ++i) {
      if (depends(i, j) == 0) continue;
      order.push_back(j);
      break;
    }
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  std::vector<bool> coarse(n, false), fine(n, false);
  for (const int64_t c : order) {
    if (fine[static_cast<size_t>(c)]) continue;
    coarse[static_cast<size_t>(c)] = true;
    for (int64_t i = 0; i < depends.rows; ++i) {
      if (depends(i, c) != 0) fine[static_cast<size_t>(i)] = true;
    }
  }
  return coarse;
}

Dense ExtendedInterpolation(const Dense& a, const Dense& depends, const std::vector<bool>& coarse,
                            const Vector& near, double least_left) {
  const int64_t n = a.rows;
  const auto is_coarse = [&](int64_t i) { return bool{coarse[static_cast<size_t>(i)]}; };
  const auto b = [&](int64_t i) { return near[static_cast<size_t>(i)]; };
  // a_kl b_l of another sign than a_kk b_k.
  const auto opposite = [&](int64_t k, int64_t l) {
    return a(k, l) * b(l) * a(k, k) * b(k) < 0 ? a(k, l) : 0.0;
  };
  Dense w(n, n);
  for (int64_t i = 0; i < n; ++i) {
    if (is_coarse(i)) {
      w(i, i) = 1;
      continue;
    }
    std::vector<bool> from(static_cast<size_t>(n), false);
    for (int64_t j = 0; j < n; ++j) {
      if (depends(i, j) == 0) continue;
      if (is_coarse(j)) from[static_cast<size_t>(j)] = true;
      for (int64_t l = 0; l < n; ++l) {
        if (!is_coarse(j) && depends(j, l) != 0 && is_coarse(l))
          from[static_cast<size_t>(l)] = true;
      }
    }
    if (std::count(from.begin(), from.end(), true) == 0) continue;
    double diagonal = a(i, i);
    for (int64_t j = 0; j < n; ++j) {
      if (j == i || a(i, j) == 0) continue;
      if (from[static_cast<size_t>(j)]) {
        w(i, j) += a(i, j);
        continue;
      }
      double sum = 0;
      for (int64_t l = 0; l < n; ++l) {
        if (l == i || from[static_cast<size_t>(l)]) sum += opposite(j, l) * b(l);
      }
      if (depends(i, j) == 0 || is_coarse(j) || sum == 0) {
        diagonal += a(i, j) * b(j) / b(i);
        continue;
      }
      for (int64_t l = 0; l < n; ++l) {
        const double part = a(i, j) * b(j) * opposite(j, l) / sum;
        if (l == i) diagonal += part;
        if (from[static_cast<size_t>(l)]) w(i, l) += part;
      }
    }
    if (!(diagonal / a(i, i) >= least_left)) diagonal = a(i, i);
    for (int64_t j = 0; j < n; ++j) w(i, j) /= -diagonal;
  }
  return w;
}

Dense MultiplyInOrder(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t k = 0; k < a.cols; ++k) {
        if (a(i, k) != 0 && b(k, j) != 0) c(i, j) = std::fma(a(i, k), b(k, j), c(i, j));
      }
    }
  }
  return c;
}

}  // namespace spaid::oracle
