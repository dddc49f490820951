// Attention of a few rows over the columns that each of them sees, in pieces whose results are joined. Sums go by the
// places of columns in a row's text, not by where they lie: so a row of a tree comes out as it would in plain text.
#pragma once

#include <algorithm>

#include "vectors.h"

constexpr int tile = 16;    // columns whose keys lie beside each other in the cache: [dim][tile]
constexpr int piece = 128;  // places
constexpr int rows_at_once = 8;
constexpr int heads_at_once = 4;

// Between a column's numbers [dim] and where they lie among all keys of a head, or its values.
inline int64_t offset(int64_t dim, bool keys, int64_t column) {
  return keys ? column / tile * tile * dim + column % tile : column * dim;
}
inline void place_column(const float* x, int64_t dim, bool keys, int64_t column, float* all) {
  float* to = all + offset(dim, keys, column);
  for (int64_t d = 0; d < dim; d++) to[keys ? d * tile : d] = x[d];
}
inline void take_column(const float* all, int64_t dim, bool keys, int64_t column, float* x) {
  const float* from = all + offset(dim, keys, column);
  for (int64_t d = 0; d < dim; d++) x[d] = from[keys ? d * tile : d];
}

// What a row sees: `count` places of its text, from `lowest` on. A place before `plain` lies in the column of the same
// number, a later one in a column of the list, which begins with that of `lowest`.
struct Seen {
  const int32_t* columns;
  int64_t lowest, count, plain;
  int64_t end() const { return lowest + count; }
  int64_t column(int64_t place) const { return place < plain ? place : columns[place - lowest]; }
};

// Of a piece: the largest score, and the sum of e^(score - largest).
struct Part {
  float largest, total;
};

// Rows of the heads that share keys [columns / tile][dim][tile] and values [columns][dim].
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

// For so many heads, the vectors of each whose sums fit into the registers.
constexpr int vectors_at_once(int heads) {
  int found = 8;
  while (found > 1 && found * heads + heads + 1 > registers) found /= 2;
  return found;
}

// Calls use(first vector, count as a constant) for all of `vectors`, `most` at a time while there are so many.
template <int most, class Use>
inline void in_steps(int64_t vectors, Use use, int64_t first = 0) {
  for (; first + most <= vectors; first += most) use(first, std::integral_constant<int, most>());
  if constexpr (most > 1)
    if (first < vectors) in_steps<most / 2>(vectors, use, first);
}

// Products of the queries [heads][dim] of a row with the keys of so many columns, a multiple of a tile: [heads][piece].
template <int heads>
inline void products(const float* queries, const float* keys, int64_t dim, int64_t columns, float* out) {
  in_steps<vectors_at_once(heads)>(columns / lanes, [=](int64_t first, auto count) {
    constexpr int sums = heads * count;
    Floats found[sums];
    const Floats none = held(Floats{});
#pragma GCC unroll 32
    for (int i = 0; i < sums; i++) found[i] = none;
    const float* from = keys + first * lanes / tile * tile * dim + first * lanes % tile;
    for (int64_t d = 0; d < dim; d++) {
#pragma GCC unroll 8
      for (int v = 0; v < count; v++) {
        const Floats key = held(load(from + v * lanes / tile * tile * dim + v * lanes % tile + d * tile));
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) found[v * heads + h] += queries[h * dim + d] * key;
      }
    }
#pragma GCC unroll 32
    for (int i = 0; i < sums; i++) store(out + i % heads * piece + (first + i / heads) * lanes, found[i]);
  });
}

// Adds the values of places `from` to `to` of a piece, each times its weights [heads][piece], to the sums
// [heads][next]. at(place): where its value is.
template <int heads, class At>
inline void add_up(const float* weights, int64_t from, int64_t to, int64_t dim, float* sums, int64_t next, At at) {
  in_steps<vectors_at_once(heads)>(dim / lanes, [=](int64_t first, auto count) {
    Floats found[heads * count];
#pragma GCC unroll 32
    for (int i = 0; i < heads * count; i++) found[i] = load(sums + i % heads * next + (first + i / heads) * lanes);
    for (int64_t j = from; j < to; j++) {
      const float* values = at(j) + first * lanes;
#pragma GCC unroll 8
      for (int v = 0; v < count; v++) {
        const Floats value = held(load(values + v * lanes));
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) found[v * heads + h] += weights[h * piece + j] * value;
      }
    }
#pragma GCC unroll 32
    for (int i = 0; i < heads * count; i++) store(sums + i % heads * next + (first + i / heads) * lanes, found[i]);
  });
}

// Products of a piece become weights: e^(score - largest) from place `from` to `to`.
inline Part weigh(int64_t from, int64_t to, float scale, float cap, float* found) {
  const Ints places = numbered();
  const auto here = [&](int64_t j) { return (places >= int32_t(from - j)) & (places < int32_t(to - j)); };
  const int64_t begin = from / lanes * lanes;
  Floats most = all(-3e38f), total = {};
  for (int64_t j = begin; j < to; j += lanes) {
    Floats score = load(found + j) * scale;
    if (cap) score = cap - 2 * cap / (1 + exponential(score * (2 / cap)));
    most = chosen((score > most) & here(j), score, most);
    store(found + j, score);
  }
  const float top = largest(most);
  for (int64_t j = begin; j < to; j += lanes) {
    const Floats one = chosen(here(j), exponential(load(found + j) - top), Floats{});
    total += one;
    store(found + j, one);
  }
  return {top, sum(total)};
}

// The heads of a row some at a time: use(first, count as a constant).
template <class Use>
inline void some_heads(int64_t heads, Use use) {
  const int64_t turns = (heads + heads_at_once - 1) / heads_at_once, size = (heads + turns - 1) / turns;
  for (int64_t first = 0; first < heads; first += size) switch (std::min(size, heads - first)) {
      case 1: use(first, std::integral_constant<int, 1>()); break;
      case 2: use(first, std::integral_constant<int, 2>()); break;
      case 3: use(first, std::integral_constant<int, 3>()); break;
      default: use(first, std::integral_constant<int, 4>());
    }
}

// The keys of the tile of these places of a row's text, as if each column lay at its place.
inline void gather(const Seen& seen, int64_t place, const float* keys, int64_t dim, float* out) {
  std::copy_n(keys + place * dim, tile * dim, out);
  for (int64_t one = std::max(place, seen.plain); one < std::min(place + tile, seen.end()); one++) {
    const int64_t column = seen.column(one);
    const float* key = keys + offset(dim, true, column);
    for (int64_t d = 0; d < dim; d++) out[d * tile + one - place] = key[d * tile];
  }
}

// The products of all heads of a row with keys from place `from` to `end` of the piece that begins with place `begin`;
// those before `plain` lie at their places. gathered: room for a tile.
inline void scores(const Shared& shared, int64_t row, const Seen& seen, int64_t begin, int64_t from, int64_t end,
                   int64_t plain, float* gathered, float* out) {
  const float* queries = shared.queries + row * shared.next_row;
  const auto all_heads = [&](const float* keys, int64_t place, int64_t columns) {
    some_heads(shared.heads, [&](int64_t h, auto count) {
      products<count>(queries + h * shared.dim, keys, shared.dim, columns, out + h * piece + place);
    });
  };
  int64_t place = from / tile * tile;
  const int64_t tiles = (plain < end ? plain : end + tile - 1) / tile * tile;  // up to here read where they are
  if (place < tiles) all_heads(shared.keys + (begin + place) * shared.dim, place, tiles - place);
  for (place = std::max(place, tiles); place < end; place += tile) {
    gather(seen, begin + place, shared.keys, shared.dim, gathered);
    all_heads(gathered, place, tile);
  }
}

// The piece of this number of what each row sees; rows that see nothing of it are passed over. Keys, and then values,
// serve all rows while they are in a near cache. room: [rows][heads][piece], [tile][dim].
inline void attend(const Shared& shared, const Seen* seen, int64_t number, float* room, const Parts& to) {
  const int64_t dim = shared.dim, heads = shared.heads, begin = number * piece, next = to.next_head * dim;
  const auto each = [&](auto use) {  // rows, which of the piece's places they see, up to where these are plain
    for (int64_t r = 0; r < shared.rows; r++) {
      const auto within = [&](int64_t place) { return std::clamp<int64_t>(place - begin, 0, piece); };
      const int64_t from = within(seen[r].lowest), end = within(seen[r].end());
      if (from < end) use(r, from, end, std::clamp(within(seen[r].plain), from, end), room + r * heads * piece);
    }
  };
  each([&](int64_t r, int64_t from, int64_t end, int64_t plain, float* weights) {
    scores(shared, r, seen[r], begin, from, end, plain, room + shared.rows * heads * piece, weights);
  });
  each([&](int64_t r, int64_t from, int64_t end, int64_t, float* weights) {
    for (int64_t h = 0; h < heads; h++)
      to.parts[r * to.next_row + h * to.next_head] = weigh(from, end, shared.scale, shared.cap, weights + h * piece);
  });
  each([&](int64_t r, int64_t from, int64_t end, int64_t plain, float* weights) {
    some_heads(heads, [&](int64_t h, auto count) {
      const float* own = weights + h * piece;
      float* sums = to.sums + r * to.next_row * dim + h * next;
      for (int i = 0; i < count; i++) std::fill_n(sums + i * next, dim, 0.0f);
      add_up<count>(own, from, plain, dim, sums, next, [&](int64_t j) { return shared.values + (begin + j) * dim; });
      add_up<count>(own, plain, end, dim, sums, next,
                    [&](int64_t j) { return shared.values + seen[r].column(begin + j) * dim; });
    });
  });
}

// What the pieces of a head give together, [dim].
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
