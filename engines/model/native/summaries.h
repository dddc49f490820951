// The most likely tokens of rows of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "vectors.h"

constexpr int64_t favourites = 3;  // how many of the most likely tokens of a row are found

// What rows of logits say, one array after the other: ids and probs [rows][favourites] of the most likely tokens, the
// first ones among equals, id -1 for no more; leads [rows]: the largest logit minus the second. A row with a nan has
// probs of nan.
struct Summary {
  int64_t* ids;
  double* probs;
  float* leads;

  Summary(void* place, int64_t rows)
      : ids((int64_t*)place), probs((double*)(ids + rows * favourites)), leads((float*)(probs + rows * favourites)) {}
};

// Inserts a value into the largest so far, after those that equal it.
inline void insert(int64_t id, float value, int64_t* ids, float* values) {
  if (!(value > values[favourites - 1])) return;
  int64_t at = favourites - 1;
  for (; at > 0 && value > values[at - 1]; at--) values[at] = values[at - 1], ids[at] = ids[at - 1];
  values[at] = value, ids[at] = id;
}

// The largest of some logits [size] above minus infinity, the first ones among equals: their token ids, or -1, and their
// values. Returns the sum of e^(logit - max), made in a fixed order; nan where a logit is nan.
inline double find_largest(const float* logits, int64_t size, int64_t* ids, float* values) {
  constexpr int64_t step = 8 * lanes;
  std::fill_n(ids, favourites, -1);
  std::fill_n(values, favourites, -INFINITY);
  Floats sums[4] = {};
  Ints nans = {};
  int64_t i = 0;
  for (; i + step <= size; i += step) {
    Floats max = load(logits + i);
    nans |= max != max;
    for (int64_t j = lanes; j < step; j += lanes) {
      const Floats other = load(logits + i + j);
      nans |= other != other;
      max = blend(other > max, other, max);
    }
    if (max_lane(max) > values[favourites - 1]) {
      const float before = values[0];
      for (int64_t j = i; j < i + step; j++) insert(j, logits[j], ids, values);
      if (values[0] > before)  // the sums are relative to the largest logit so far
        for (Floats& partial : sums) partial *= std::exp(before - values[0]);
    }
    if (ids[0] < 0) continue;
    for (int64_t j = 0; j < 8; j++) sums[j % 4] += exponential(load(logits + i + j * lanes) - values[0]);
  }
  const float before = values[0];
  const int64_t rest = i;
  bool nan = sum(nans) != 0;
  for (; i < size; i++) insert(i, logits[i], ids, values), nan |= std::isnan(logits[i]);
  if (nan) return NAN;
  if (ids[0] < 0) return 0;
  double total = sum(sums[0] + sums[1] + (sums[2] + sums[3])) * std::exp(before - values[0]);
  for (i = rest; i < size; i++) total += std::exp(logits[i] - values[0]);
  return total;
}

// Summarises rows of logits [size], block by block, so that threads can share a row, and the order of all sums is fixed.
class Summariser {
 public:
  Summariser(int64_t rows, int64_t size)
      : rows(rows), size(size), blocks((size + block - 1) / block), found(rows * blocks) {}

  // How many blocks there are. All rows' first ones come first, since that is how threads share out products.
  int64_t items() const { return rows * blocks; }

  void read(int64_t item, const float* logits) {
    const int64_t begin = item / rows * block;
    const float* from = logits + item % rows * size + begin;
    found[item].total = find_largest(from, std::min(block, size - begin), found[item].ids, found[item].values);
  }

  // Joins the blocks of a row, as row `to` of a summary.
  void join(int64_t row, const Summary& summary, int64_t to) const {
    int64_t* ids = summary.ids + to * favourites;
    float best[favourites];
    std::fill_n(best, favourites, -INFINITY);
    std::fill_n(ids, favourites, -1);
    for (int64_t item = row; item < items(); item += rows)
      for (int64_t i = 0; i < favourites; i++)
        if (found[item].ids[i] >= 0) insert(item / rows * block + found[item].ids[i], found[item].values[i], ids, best);
    double total = 0;
    for (int64_t item = row; item < items(); item += rows)
      if (found[item].total != 0) total += found[item].total * std::exp(double(found[item].values[0] - best[0]));
    for (int64_t i = 0; i < favourites; i++)
      summary.probs[to * favourites + i] = std::exp(double(best[i] - best[0])) / total;
    summary.leads[to] = size > 1 ? best[0] - best[1] : 0;
  }

 private:
  static constexpr int64_t block = 1 << 14;
  struct Block {
    int64_t ids[favourites];
    float values[favourites];
    double total;
  };
  const int64_t rows, size, blocks;
  std::vector<Block> found;
};
