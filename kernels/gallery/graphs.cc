// Families on irregular graphs. The order in which random numbers are drawn is part of their
// definition: each draw has its own statement, since C++ orders no function's arguments.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/gallery/rows.h"

namespace spaid::gallery {

Matrix Circuit(int64_t n, int hubs, int hub_degree) {
  Uniform uniform(12345);
  std::vector<Terms> rows(n);
  std::vector<double> diagonal(n, 0.0);
  const auto pick_node = [&] { return static_cast<int>(static_cast<double>(n) * uniform()); };
  const auto conductance = [&] { return std::pow(10.0, -2 + 3 * uniform()); };
  const auto connect = [&](int a, int b, double weight) {
    if (a == b) return;
    rows[a].emplace_back(b, -weight);
    rows[b].emplace_back(a, -weight);
    diagonal[a] += weight;
    diagonal[b] += weight;
  };
  for (int i = 1; i < n; ++i) {
    const int links = 1 + (uniform() < 0.6 ? 1 : 0);
    for (int t = 0; t < links; ++t) {
      int j;
      if (uniform() < 0.85) {  // mostly nearby
        const double first = uniform(), second = uniform();
        j = std::max(0, i - 1 - static_cast<int>(first * second * std::min(i, 300)));
      } else {
        j = static_cast<int>(i * uniform());
      }
      connect(i, j, conductance());
    }
  }
  for (int h = 0; h < hubs; ++h) {
    const int center = pick_node();
    const int degree = static_cast<int>(hub_degree * (0.5 + 0.5 * uniform()));
    for (int t = 0; t < degree; ++t) {
      const double weight = conductance() * 0.1;
      connect(center, pick_node(), weight);
    }
  }
  // Voltage-controlled current sources act one way: entries without a partner.
  for (int64_t i = 0; i < n / 5; ++i) {
    const int a = pick_node();
    const int b = a - 1 - static_cast<int>(uniform() * 50);
    if (b < 0) continue;
    const double strength = 0.3 * std::min(conductance(), diagonal[a]);
    rows[a].emplace_back(b, strength);
  }
  RowBuilder built(n, 5 * n);
  for (int i = 0; i < n; ++i) {
    rows[i].emplace_back(i, diagonal[i] * (1 + 0.02 * uniform()) + 0.04);
    AddSummedRow(rows[i], built);
    Terms().swap(rows[i]);
  }
  return std::move(built).ToCsc();
}

Matrix RandomIrregular(int64_t n) {
  Uniform uniform(777);
  RowBuilder built(n, 8 * n);
  Terms terms;
  for (int64_t i = 0; i < n; ++i) {
    terms.clear();
    // Many short rows, few long ones.
    const double draw = uniform();
    const int count = static_cast<int>(59 * draw * draw * draw * draw);
    double sum = 0;
    for (int t = 0; t < count; ++t) {
      const int j = static_cast<int>(static_cast<double>(n) * uniform());
      const double sign = uniform() < 0.5 ? -1 : 1;
      const double value = sign * std::pow(10.0, -5 + 6 * uniform());
      if (j == i) continue;
      terms.emplace_back(j, value);
      sum += std::fabs(value);
    }
    const double slack = 0.8 + 0.6 * uniform();
    terms.emplace_back(static_cast<int>(i), sum * slack + 0.1);
    AddSummedRow(terms, built);
  }
  return std::move(built).ToCsc();
}

Matrix GraphLaplacian(int64_t n) {
  Uniform uniform(4321);
  std::vector<Terms> rows(n);
  std::vector<int> ends;  // every end of every edge: drawing from it prefers busy nodes
  ends.reserve(4 * n);
  const auto connect = [&](int a, int b) {
    rows[a].emplace_back(b, -1.0);
    rows[b].emplace_back(a, -1.0);
    ends.push_back(a);
    ends.push_back(b);
  };
  connect(0, 1);
  for (int i = 2; i < n; ++i) {
    const size_t drawn = ends.size();
    const int first = ends[static_cast<size_t>(static_cast<double>(drawn) * uniform())];
    const int second = ends[static_cast<size_t>(static_cast<double>(drawn) * uniform())];
    connect(i, first);
    if (second != first) connect(i, second);
  }
  RowBuilder built(n, 5 * n);
  for (int i = 0; i < n; ++i) {
    rows[i].emplace_back(i, static_cast<double>(rows[i].size()));
    AddSummedRow(rows[i], built);
  }
  return std::move(built).ToCsc();
}

Matrix Periodic(int64_t n, int count) {
  constexpr int64_t kPeriod = 61;
  std::mt19937 random(1);
  std::vector<std::set<int64_t>> shifts(kPeriod);
  for (std::set<int64_t>& own : shifts) {
    own.insert(0);
    while (static_cast<int>(own.size()) < count) {
      own.insert(static_cast<int64_t>(random() % 4001) - 2000);
    }
  }
  RowBuilder rows(n, n * count);
  for (int64_t i = 0; i < n; ++i) {
    for (const int64_t shift : shifts[i % kPeriod]) {
      if (i + shift >= 0 && i + shift < n) rows.Add(i + shift, shift == 0 ? 4 : 1.0 / count);
    }
    rows.EndRow();
  }
  return std::move(rows).ToCsc();
}

}  // namespace spaid::gallery
