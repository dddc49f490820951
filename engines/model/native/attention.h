// Attention of a few rows, each over the columns of the KV cache that it sees. Each chunk of positions has a partial
// softmax, and these are combined at the end, as in flash-decoding. Sums follow the positions in a row's text, not the
// columns of the cache, so a row of a draft tree has the same result as in plain text.
#pragma once

#include <algorithm>

#include "vectors.h"

constexpr int key_tile = 16;  // columns whose keys are interleaved in the cache: [dim][key_tile]
constexpr int chunk = 128;    // positions
constexpr int rows_at_once = 8;
constexpr int heads_at_once = 4;

// Copies a key or a value [dim] into its column among all keys or values of a head, and back.
inline int64_t offset(int64_t dim, bool keys, int64_t column) {
  return keys ? column / key_tile * key_tile * dim + column % key_tile : column * dim;
}
inline void write_column(const float* x, int64_t dim, bool keys, int64_t column, float* cache) {
  float* to = cache + offset(dim, keys, column);
  for (int64_t d = 0; d < dim; d++) to[keys ? d * key_tile : d] = x[d];
}
inline void read_column(const float* cache, int64_t dim, bool keys, int64_t column, float* x) {
  const float* from = cache + offset(dim, keys, column);
  for (int64_t d = 0; d < dim; d++) x[d] = from[keys ? d * key_tile : d];
}

// What a row sees: `count` positions of its text, from `first` on. Positions before `in_order` are in the column of the
// same number, later ones in `columns[position - first]`.
struct Visible {
  const int32_t* columns;
  int64_t first, count, in_order;
  int64_t end() const { return first + count; }
  int64_t column(int64_t position) const { return position < in_order ? position : columns[position - first]; }
};

// The partial softmax of a chunk: the largest score, and the sum of e^(score - max).
struct Partial {
  float max, total;
};

// The query heads of a GQA group. They share keys [columns / key_tile][dim][key_tile] and values [columns][dim].
struct HeadGroup {
  const float *queries, *keys, *values;  // queries [rows][heads][dim]
  int64_t rows, heads, dim;
  int64_t row_stride;      // between the queries of rows
  float scale, score_cap;  // scores become score_cap * tanh(score / score_cap), unless it is 0
};

// Where the partial results go: those of head h of row r to [r * row_stride + h * head_stride].
struct PartialOutputs {
  Partial* partials;
  float* sums;  // of the values weighted by e^(score - max), [dim] each
  int64_t row_stride, head_stride;
};

// How many vectors can be accumulated in registers for each of so many heads.
constexpr int vectors_at_once(int heads) {
  int count = 8;
  while (count > 1 && count * heads + heads + 1 > registers) count /= 2;
  return count;
}

// Calls use(first vector, count as a constant) for all vectors, `max` at a time as long as possible.
template <int max, class Use>
inline void for_vectors(int64_t vectors, Use use, int64_t first = 0) {
  for (; first + max <= vectors; first += max) use(first, std::integral_constant<int, max>());
  if constexpr (max > 1)
    if (first < vectors) for_vectors<max / 2>(vectors, use, first);
}

// QK^T: queries [heads][dim] of a row times the keys of so many columns, a multiple of a tile: scores [heads][chunk].
template <int heads>
inline void multiply_keys(const float* queries, const float* keys, int64_t dim, int64_t columns, float* scores) {
  for_vectors<vectors_at_once(heads)>(columns / lanes, [=](int64_t first, auto count) {
    constexpr int size = heads * count;
    Floats accumulators[size];
    const Floats zero = in_register(Floats{});
#pragma GCC unroll 32
    for (int i = 0; i < size; i++) accumulators[i] = zero;
    const float* from = keys + first * lanes / key_tile * key_tile * dim + first * lanes % key_tile;
    for (int64_t d = 0; d < dim; d++) {
#pragma GCC unroll 8
      for (int v = 0; v < count; v++) {
        const Floats key =
            in_register(load(from + v * lanes / key_tile * key_tile * dim + v * lanes % key_tile + d * key_tile));
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) accumulators[v * heads + h] += queries[h * dim + d] * key;
      }
    }
#pragma GCC unroll 32
    for (int i = 0; i < size; i++) store(scores + i % heads * chunk + (first + i / heads) * lanes, accumulators[i]);
  });
}

// Adds the values of positions `from` to `end` of a chunk, times the weights [heads][chunk], to the sums [heads][dim],
// which are `stride` apart. value_at(j) is the address of a value.
template <int heads, class ValueAt>
inline void add_values(const float* weights, int64_t from, int64_t end, int64_t dim, float* sums, int64_t stride,
                       ValueAt value_at) {
  for_vectors<vectors_at_once(heads)>(dim / lanes, [=](int64_t first, auto count) {
    Floats accumulators[heads * count];
#pragma GCC unroll 32
    for (int i = 0; i < heads * count; i++)
      accumulators[i] = load(sums + i % heads * stride + (first + i / heads) * lanes);
    for (int64_t j = from; j < end; j++) {
      const float* values = value_at(j) + first * lanes;
#pragma GCC unroll 8
      for (int v = 0; v < count; v++) {
        const Floats value = in_register(load(values + v * lanes));
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) accumulators[v * heads + h] += weights[h * chunk + j] * value;
      }
    }
#pragma GCC unroll 32
    for (int i = 0; i < heads * count; i++)
      store(sums + i % heads * stride + (first + i / heads) * lanes, accumulators[i]);
  });
}

// Partial softmax, in place: the scores of positions `from` to `end` become weights e^(score - max).
inline Partial softmax(int64_t from, int64_t end, float scale, float score_cap, float* scores) {
  const Ints lane = lane_indices();
  const auto inside = [&](int64_t j) { return (lane >= int32_t(from - j)) & (lane < int32_t(end - j)); };
  const int64_t begin = from / lanes * lanes;
  Floats maxima = broadcast(-3e38f), total = {};
  for (int64_t j = begin; j < end; j += lanes) {
    Floats score = load(scores + j) * scale;
    if (score_cap) score = score_cap - 2 * score_cap / (1 + exponential(score * (2 / score_cap)));
    maxima = blend((score > maxima) & inside(j), score, maxima);
    store(scores + j, score);
  }
  const float max = max_lane(maxima);
  for (int64_t j = begin; j < end; j += lanes) {
    const Floats weights = blend(inside(j), exponential(load(scores + j) - max), Floats{});
    total += weights;
    store(scores + j, weights);
  }
  return {max, sum(total)};
}

// Calls use(first head, count as a constant) for all heads, a few at a time.
template <class Use>
inline void for_heads(int64_t heads, Use use) {
  const int64_t steps = (heads + heads_at_once - 1) / heads_at_once, size = (heads + steps - 1) / steps;
  for (int64_t first = 0; first < heads; first += size) switch (std::min(size, heads - first)) {
      case 1: use(first, std::integral_constant<int, 1>()); break;
      case 2: use(first, std::integral_constant<int, 2>()); break;
      case 3: use(first, std::integral_constant<int, 3>()); break;
      default: use(first, std::integral_constant<int, 4>());
    }
}

// Gathers the keys of a tile of positions, as if their columns were in order.
inline void gather_keys(const Visible& visible, int64_t position, const float* keys, int64_t dim, float* out) {
  std::copy_n(keys + position * dim, key_tile * dim, out);
  for (int64_t p = std::max(position, visible.in_order); p < std::min(position + key_tile, visible.end()); p++) {
    const int64_t column = visible.column(p);
    const float* key = keys + offset(dim, true, column);
    for (int64_t d = 0; d < dim; d++) out[d * key_tile + p - position] = key[d * key_tile];
  }
}

// The scores of all heads of a row for positions `from` to `end` of the chunk that begins at position `begin`; the keys
// before `in_order` are in order. gathered: room for a tile of keys.
inline void compute_scores(const HeadGroup& gqa, int64_t row, const Visible& visible, int64_t begin, int64_t from,
                           int64_t end, int64_t in_order, float* gathered, float* scores) {
  const float* queries = gqa.queries + row * gqa.row_stride;
  const auto all_heads = [&](const float* keys, int64_t at, int64_t columns) {
    for_heads(gqa.heads, [&](int64_t h, auto count) {
      multiply_keys<count>(queries + h * gqa.dim, keys, gqa.dim, columns, scores + h * chunk + at);
    });
  };
  int64_t at = from / key_tile * key_tile;
  const int64_t direct = (in_order < end ? in_order : end + key_tile - 1) / key_tile * key_tile;  // read in place
  if (at < direct) all_heads(gqa.keys + (begin + at) * gqa.dim, at, direct - at);
  for (at = std::max(at, direct); at < end; at += key_tile) {
    gather_keys(visible, begin + at, gqa.keys, gqa.dim, gathered);
    all_heads(gathered, at, key_tile);
  }
}

// One chunk for all rows; rows that see nothing of it are skipped. First the keys and then the values serve all rows
// while they are in the cache. scratch: [rows][heads][chunk] for scores, [key_tile][dim] for gathered keys.
inline void attend(const HeadGroup& gqa, const Visible* visible, int64_t index, float* scratch,
                   const PartialOutputs& to) {
  const int64_t dim = gqa.dim, heads = gqa.heads, begin = index * chunk, stride = to.head_stride * dim;
  const auto for_rows = [&](auto use) {  // use(row, from, end, in_order, scores), positions relative to the chunk
    for (int64_t r = 0; r < gqa.rows; r++) {
      const auto relative = [&](int64_t position) { return std::clamp<int64_t>(position - begin, 0, chunk); };
      const int64_t from = relative(visible[r].first), end = relative(visible[r].end());
      if (from < end)
        use(r, from, end, std::clamp(relative(visible[r].in_order), from, end), scratch + r * heads * chunk);
    }
  };
  for_rows([&](int64_t r, int64_t from, int64_t end, int64_t in_order, float* scores) {
    compute_scores(gqa, r, visible[r], begin, from, end, in_order, scratch + gqa.rows * heads * chunk, scores);
  });
  for_rows([&](int64_t r, int64_t from, int64_t end, int64_t, float* scores) {
    for (int64_t h = 0; h < heads; h++)
      to.partials[r * to.row_stride + h * to.head_stride] =
          softmax(from, end, gqa.scale, gqa.score_cap, scores + h * chunk);
  });
  for_rows([&](int64_t r, int64_t from, int64_t end, int64_t in_order, float* weights) {
    for_heads(heads, [&](int64_t h, auto count) {
      const float* head_weights = weights + h * chunk;
      float* sums = to.sums + r * to.row_stride * dim + h * stride;
      for (int i = 0; i < count; i++) std::fill_n(sums + i * stride, dim, 0.0f);
      add_values<count>(head_weights, from, in_order, dim, sums, stride,
                        [&](int64_t j) { return gqa.values + (begin + j) * dim; });
      add_values<count>(head_weights, in_order, end, dim, sums, stride,
                        [&](int64_t j) { return gqa.values + visible[r].column(begin + j) * dim; });
    });
  });
}

// Combines the partial results of a head's chunks, [dim].
inline void combine(const Partial* partials, const float* sums, int64_t chunks, int64_t dim, float* out) {
  float max = partials[0].max, total = 0;
  for (int64_t i = 1; i < chunks; i++) max = std::max(max, partials[i].max);
  for (int64_t d = 0; d < dim; d++) out[d] = 0;
  for (int64_t i = 0; i < chunks; i++) {
    const float rescale = exponential(broadcast(partials[i].max - max))[0];
    total += partials[i].total * rescale;
    for (int64_t d = 0; d < dim; d++) out[d] += sums[i * dim + d] * rescale;
  }
  for (int64_t d = 0; d < dim; d++) out[d] /= total;
}
