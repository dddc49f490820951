// Attention of a few rows over the columns that each of them sees, in pieces whose results are joined. Sums go by the
// order of these columns, not by their places: so a row of a tree comes out as it would in plain text.
#pragma once

#include <algorithm>

#include "vectors.h"

constexpr int piece = 128;  // columns
constexpr int rows_at_once = 8;

// What a row sees: these columns, or the first ones.
struct Seen {
  const int32_t* columns;
  int64_t count;
  int64_t at(int64_t i) const { return columns ? columns[i] : i; }
};

// Of a piece: the largest score, and the sum of e^(score - largest).
struct Part {
  float largest, total;
};

// Rows of the heads that share keys and values [capacity][dim].
struct Shared {
  const float *queries, *keys, *values;  // queries [rows][heads][dim]
  int64_t rows, heads, dim;
  int64_t next_row;  // between the queries of rows
  float scale, cap;  // cap: scores are cap * tanh(score / cap), unless it is 0
};

// Where results go: of head h of row r those at [r * next_row + h * next_head].
struct Parts {
  Part* parts;
  float* sums;  // of values, each times its e^(score - largest): [dim] each
  int64_t next_row, next_head;
};

template <int D>
inline Floats scores(const float* query, const float* const* keys, int64_t dim) {
  Floats products[lanes];
#pragma GCC unroll 16
  for (int j = 0; j < lanes; j++) {
    Floats one = {};
    for (int d = 0; d < (D ? D : dim) / lanes; d++) one += load(query + d * lanes) * load(keys[j] + d * lanes);
    products[reversed(j)] = one;
  }
  return sums(products);
}

// The scores of `count` keys become weights: e^(score - largest), and zeros up to a whole vector.
inline Part weigh(int64_t count, float* scores) {
  const Ints places = numbered();
  Floats most = all(-3e38f), total = {};
  for (int64_t j = 0; j < count; j += lanes) {
    const Floats found = load(scores + j);
    most = chosen((found > most) & (places < int32_t(count - j)), found, most);
  }
  const float top = largest(most);
  for (int64_t j = 0; j < count; j += lanes) {
    const Floats one = chosen(places < int32_t(count - j), exponential(load(scores + j) - top), Floats{});
    total += one;
    store(scores + j, one);
  }
  return {top, sum(total)};
}

// Adds values, each `to_values` numbers after its key, times their weights to the sums [dim] of even and of odd ones.
template <int D>
inline void add_up(const float* weights, const float* const* keys, int64_t to_values, int64_t count, int64_t dim,
                   float* evens, float* odds) {
  constexpr int most = D ? std::min(D / lanes, registers / 4) : 1;  // vectors at a time
  for (int64_t first = 0; first < dim / lanes; first += most) {
    Floats even[most], odd[most];
    for (int d = 0; d < most; d++) even[d] = load(evens + (first + d) * lanes), odd[d] = load(odds + (first + d) * lanes);
    for (int64_t j = 0; j < count; j += 2)
      for (int d = 0; d < most; d++) {
        const int64_t place = to_values + (first + d) * lanes;
        even[d] += weights[j] * load(keys[j] + place);
        odd[d] += weights[j + 1] * load(keys[j + 1] + place);  // of weight 0 after the last
      }
    for (int d = 0; d < most; d++) store(evens + (first + d) * lanes, even[d]), store(odds + (first + d) * lanes, odd[d]);
  }
}

// A piece of what each row sees, from its column number `from` on; rows that see fewer are passed over. A few keys, then
// a few values, serve all rows and heads while they are in the nearest cache.
// room: [rows][heads][piece + dim].
template <int D>
void attend(const Shared& all_rows, const Seen* seen, int64_t from, float* room, const Parts& to) {
  constexpr int at_once = D && D <= 64 ? piece : 32;  // columns whose keys or values stay in the nearest cache
  const int64_t dim = all_rows.dim, heads = all_rows.heads;
  const float* keys[rows_at_once][piece];
  int64_t counts[rows_at_once], most = 0;
  for (int64_t r = 0; r < all_rows.rows; r++) {
    const int64_t count = counts[r] = std::clamp<int64_t>(seen[r].count - from, 0, piece);
    most = std::max(most, count);
    for (int64_t j = 0; j < (count + lanes - 1) / lanes * lanes; j++)
      keys[r][j] = all_rows.keys + seen[r].at(from + std::min(j, count - 1)) * dim;
  }
  const auto each = [&](int64_t begin, auto use) {  // of those that see a column from `begin` on
    for (int64_t r = 0; r < all_rows.rows; r++)
      for (int64_t h = 0; h < heads && begin < counts[r]; h++)
        use(r, h, room + (r * heads + h) * (piece + dim), to.sums + (r * to.next_row + h * to.next_head) * dim);
  };
  for (int64_t begin = 0; begin < most; begin += at_once)
    each(begin, [&](int64_t r, int64_t h, float* weights, float*) {
      const float *query = all_rows.queries + r * all_rows.next_row + h * dim, cap = all_rows.cap;
      for (int64_t j = begin; j < std::min<int64_t>(begin + at_once, counts[r]); j += lanes) {
        Floats found = scores<D>(query, keys[r] + j, dim) * all_rows.scale;
        if (cap) found = cap - 2 * cap / (1 + exponential(found * (2 / cap)));
        store(weights + j, found);
      }
    });
  each(0, [&](int64_t r, int64_t h, float* weights, float* sums) {
    to.parts[r * to.next_row + h * to.next_head] = weigh(counts[r], weights);
    std::fill(sums, sums + dim, 0.0f);
    std::fill(weights + piece, weights + piece + dim, 0.0f);
  });
  for (int64_t begin = 0; begin < most; begin += at_once)
    each(begin, [&](int64_t r, int64_t, float* weights, float* sums) {
      add_up<D>(weights + begin, keys[r] + begin, all_rows.values - all_rows.keys,
                std::min<int64_t>(at_once, counts[r] - begin), dim, sums, weights + piece);
    });
  each(0, [&](int64_t, int64_t, const float* weights, float* sums) {
    for (int64_t d = 0; d < dim; d++) sums[d] += weights[piece + d];
  });
}

// What all pieces of a head give together, [dim].
inline void join(const Part* parts, const float* sums, int64_t pieces, int64_t dim, float* out) {
  float top = parts[0].largest, total = 0;
  for (int64_t i = 1; i < pieces; i++) top = std::max(top, parts[i].largest);
  for (int64_t d = 0; d < dim; d++) out[d] = 0;
  for (int64_t i = 0; i < pieces; i++) {
    const float share = exponential(all(parts[i].largest - top))[0];
    total += parts[i].total * share;
    for (int64_t d = 0; d < dim; d++) out[d] += sums[i * dim + d] * share;
  }
  for (int64_t d = 0; d < dim; d++) out[d] /= total;
}
