// Products of rounded rows with weights that are stored as integers. Kinds whose numbers are stored in the same way share
// the code. Rarer kinds, and Q6_K, are unpacked to bytes in the nearest cache first.
#include "whole.h"

namespace {

constexpr int stretch = 256;  // inputs that all rows are multiplied with before the next

// The kind whose numbers are read: those of q8_0 are bytes.
constexpr Stored read_as(Stored kind) {
  switch (kind) {
    case q4_0: case q4_1: return q4_1;
    case q5_0: case q5_1: return q5_1;
    case q4_k: case three_bits: return kind;
    default: return q8_0;
  }
}

constexpr bool becomes_bytes(Stored kind) { return read_as(kind) == q8_0 && kind != q8_0; }

// The properties of a kind that the code of its products depends on.
template <int span_, int each_, Stored read_, class Sums_>
struct Way {
  static constexpr int span = span_, each = each_ ? each_ : span_, smalls = stretch / each;
  static constexpr Stored read = read_;
  using Sums = Sums_;
};
template <Stored kind>
using WayOf = Way<form(kind).span, form(kind).each, read_as(kind), DotsOf<most(kind)>>;

// A stretch of a block, ready to be multiplied.
template <class Way>
struct Stretch {
  int spans;
  const uint8_t *scales, *numbers;
  int64_t scales_apart, numbers_apart, vectors_apart;  // bytes between spans; between numbers of 16 outputs and the next
  bool least;    // whether second scales are stored: else an offset is taken away
  float offset;
  // Of spans of 256: what multiplies sums of products; and sums of inputs, two of them in a word.
  typename Way::Sums::Factor times[Way::smalls][vectors];
  Ints pairs[Way::smalls / 2][vectors];
  alignas(64) uint8_t bytes[stretch * block];

  Numbers<Way::read> of_vector(int vector) const {
    constexpr int in_sixteen = 16 / lanes;
    return {numbers + vector / in_sixteen * vectors_apart + vector % in_sixteen * lanes * 4};
  }
};

// Prefetches what will be read, a little at a time, as few requests can be open.
struct Ahead {
  const uint8_t* at;
  int64_t each;  // bytes

  void ask() { fetch(at, each), at += each; }
};

template <Stored kind>
void make_bytes(const uint8_t* at, int spans, Ahead& ahead, Stretch<WayOf<kind>>& to) {
  constexpr int span = form(kind).span;
  to.numbers = to.bytes, to.numbers_apart = span * block, to.vectors_apart = span * 16;
  for (int s = 0; s < spans; s++, at += span_size(kind))
    for (int vector = 0; vector < vectors; vector++) {
      const Numbers<kind> numbers(at, vector);
      uint8_t* own = (uint8_t*)to.of_vector(vector).words + s * to.numbers_apart;
#pragma GCC unroll 8
      for (int place = 0; place < span / group; place++) {
        ahead.ask();
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++, own += 64) {
          const Ints four = numbers.at(place, v);
          std::memcpy(own, &four, sizeof four);
        }
      }
    }
}

template <Stored kind>
void prepare(const uint8_t* at, int spans, Ahead& ahead, Stretch<WayOf<kind>>& to) {
  using Sums = typename WayOf<kind>::Sums;
  constexpr Form f = form(kind);
  constexpr int offset = f.offset - Sums::offset;
  to.spans = spans, to.scales = at, to.scales_apart = span_size(kind), to.least = f.least, to.offset = offset;
  to.numbers = at + words_at(kind), to.numbers_apart = span_size(kind), to.vectors_apart = f.words * 64;
  if constexpr (becomes_bytes(kind)) make_bytes<kind>(at, spans, ahead, to);
  if constexpr (f.each != 0)
    for (int vector = 0; vector < vectors; vector++) {
      const Scales<kind> scales(at, vector);
      for (int small = 0; small < f.span / f.each; small += 2) {
        const Ints first = scales.times(small), next = scales.times(small + 1);
        to.times[small][vector] = Sums::factor(first), to.times[small + 1][vector] = Sums::factor(next);
        if constexpr (f.least) to.pairs[small / 2][vector] = in_pairs(scales.least(small), scales.least(small + 1));
        else to.pairs[small / 2][vector] = in_pairs(first * offset, next * offset);
      }
    }
}

// Vectors of outputs that are multiplied together: an input that was loaded serves all of them.
constexpr int at_once = registers == 32 && vectors == 2 ? 2 : 1;

// For each of R rows, and each of the vectors; their sums stay in registers only where the loop is gone.
#define OF_ROWS(r) _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)
#define OF_VECTORS(n) _Pragma("GCC unroll 2") for (int n = 0; n < at_once; n++)

// Products of R rows with inputs that share a scale: four(n, v) are the numbers of four of them. Calls move(n, r, sums)
// for each vector and row.
template <class Way, int R, class Four, class Move>
inline void multiply(const int8_t* with, Four four, Move move) {
  using Sums = typename Way::Sums;
  constexpr int words = Way::each / 4, run = std::min(words, Sums::words);
  Sums dots[at_once][R];
#pragma GCC unroll 8
  for (int v = 0; v < words; v++) {
    Ints numbers[at_once];
    OF_VECTORS(n) numbers[n] = four(n, v);
    OF_ROWS(r) {
      const Ints input_four = word(with + (v * R + r) * 4);
      OF_VECTORS(n) dots[n][r].add(numbers[n], input_four);
    }
    if ((v + 1) % run == 0) OF_ROWS(r) OF_VECTORS(n) move(n, r, dots[n][r]), dots[n][r] = {};
  }
}

// The products of a tile of R rows with spans of 32, added to totals [vectors][R].
template <class Way, int R>
void add_spans_of_32(const Stretch<Way>& from, const Rounded& x, int64_t input, Ahead& ahead, Floats* totals) {
  using Sums = typename Way::Sums;
#pragma GCC unroll 1
  for (int vector = 0; vector < vectors; vector += at_once, totals += at_once * R) {
    const int8_t* with = x.numbers + input * R;
    const float* scale = x.scale + input / group * R;
    const float* sum = (from.least ? x.sum_rounded : x.sum) + input / group * R;
    const uint8_t* scales = from.scales + 2 * lanes * vector;
    Numbers<Way::read> numbers[at_once];
    OF_VECTORS(n) numbers[n] = from.of_vector(vector + n);
    Floats total[at_once][R];
    OF_ROWS(r) OF_VECTORS(n) total[n][r] = totals[n * R + r];
#pragma GCC unroll 1
    for (int s = 0; s < from.spans; s++, with += group * R, scale += R, sum += R, scales += from.scales_apart) {
      ahead.ask();
      Ints found[at_once][R] = {};
      multiply<Way, R>(with, [&](int n, int v) { return numbers[n].at(0, v); },
                       [&](int n, int r, const Sums& dots) { found[n][r] += dots.sum(); });
      Floats own[at_once], second[at_once];
      OF_VECTORS(n) {
        numbers[n].words += from.numbers_apart;
        own[n] = halves(scales + 2 * lanes * n);
        second[n] = from.least ? halves(scales + 2 * block + 2 * lanes * n) : own[n] * -from.offset;
      }
      OF_ROWS(r) {
        const Floats of_row = all(scale[r]), sum_of_row = all(sum[r]);
        OF_VECTORS(n) total[n][r] = fused(floats(found[n][r]), own[n] * of_row, total[n][r]);
        OF_VECTORS(n) total[n][r] = fused(second[n], sum_of_row, total[n][r]);
      }
    }
    OF_ROWS(r) OF_VECTORS(n) totals[n * R + r] = total[n][r];
  }
}

// The same with a span of 256, where small numbers multiply the scale. What comes before that scale is made of integers,
// also where floats hold it: these are exact up to 2^24.
template <class Way, int R>
void add_span_of_256(const Stretch<Way>& from, const Rounded& x, int64_t input, Ahead& ahead, Floats* totals) {
  using Sums = typename Way::Sums;
  constexpr uint64_t turn = Way::read == q4_k ? 2 : 1;  // groups after which numbers lie as those of the first again
  constexpr int in_group = group / Way::each;
#pragma GCC unroll 1
  for (int vector = 0; vector < vectors; vector += at_once, totals += at_once * R) {
    const int8_t* with = x.numbers + input * R;
    Numbers<Way::read> numbers[at_once];
    OF_VECTORS(n) numbers[n] = from.of_vector(vector + n);
    typename Sums::Total found[at_once][R] = {};
#pragma GCC unroll 1
    for (uint64_t turns = 0; turns < stretch / group / turn; turns++)
#pragma GCC unroll 2
      for (uint64_t part = 0; part < turn; part++) {
        const uint64_t place = turns * turn + part;
        ahead.ask();
#pragma GCC unroll 2
        for (int half = 0; half < in_group; half++, with += Way::each * R) {
          typename Sums::Factor times[at_once];
          OF_VECTORS(n) times[n] = from.times[place * in_group + half][vector + n];
          multiply<Way, R>(with, [&](int n, int v) { return numbers[n].at(place, half * (Way::each / 4) + v); },
                           [&](int n, int r, const Sums& dots) { dots.move(times[n], found[n][r]); });
        }
      }
    const int16_t* sums = Way::each == 16 ? x.sum_16 + input / 16 * R : x.sum_32 + input / 32 * R;
    Ints taken[at_once][R] = {};
    for (int two = 0; two < Way::smalls / 2; two++, sums += 2 * R)
      OF_VECTORS(n) {
        const Ints pair = from.pairs[two][vector + n];
        OF_ROWS(r) taken[n][r] = plus_pairs(taken[n][r], pair, sums + 2 * r);
      }
    const float* scale = x.scale + input / stretch * R;
    const uint8_t* scales = from.scales + 2 * lanes * vector;
    OF_VECTORS(n) {
      const Floats own = halves(scales + 2 * lanes * n), second = halves(scales + 2 * block + 2 * lanes * n);
      OF_ROWS(r) {
        Floats sum = Sums::without(found[n][r], from.least ? Ints{} : taken[n][r]) * own;
        if (from.least) sum = fused(floats(taken[n][r]), -second, sum);
        totals[n * R + r] = fused(sum, all(scale[r]), totals[n * R + r]);
      }
    }
  }
}

template <class Way>
using Add = void (*)(const Stretch<Way>& from, const Rounded& x, int64_t input, Ahead& ahead, Floats* totals);

// The code for a tile of R rows.
template <class Way, int R>
constexpr Add<Way> adds() {
  if constexpr (Way::span == group) return add_spans_of_32<Way, R>;
  else return add_span_of_256<Way, R>;
}

template <Stored kind>
void rounded_blocks(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end, const Result& to) {
  using Way = WayOf<kind>;
  constexpr Add<Way> of[] = {nullptr, adds<Way, 1>(), adds<Way, 2>(), adds<Way, 3>(), adds<Way, 4>(),
                             nullptr, adds<Way, 6>(), nullptr, adds<Way, 8>()};
  struct Work {
    Tile own;
    Rounded x;
    Floats totals[vectors * tile_rows];
  };
  const int64_t tiles = Tile::number_of(count), size = span_size(kind);
  std::vector<Work> work(tiles);
  for (int64_t i = 0; i < tiles; i++) work[i].own = Tile::at(count, i), work[i].x = x.tile(w, i);
  // How many prefetches there are in a span.
  const int64_t asks = (tiles * (vectors / at_once) + (becomes_bytes(kind) ? vectors : 0)) * (Way::span / group);
  Stretch<Way> some;
  for (; from < end; from++) {
    const uint8_t* at = w.blocks + from * block_size(w);
    for (Work& one : work) std::fill_n(one.totals, vectors * one.own.width, Floats{});
    for (int64_t input = 0; input < w.in; input += stretch, at += some.spans * size) {
      Ahead ahead{at, (size + asks - 1) / asks};
      prepare<kind>(at, std::min<int64_t>(stretch, w.in - input) / Way::span, ahead, some);
      for (Work& one : work) of[one.own.width](some, one.x, input, ahead, one.totals);
    }
    for (const Work& one : work)
      for (int r = 0; r < one.own.rows; r++)
        for (int vector = 0; vector < vectors; vector++)
          put(w, to, one.own.first + r, from * block + vector * lanes, one.totals[vector * one.own.width + r]);
  }
}

}  // namespace

void rounded_product(int64_t count, const Weight& w, const RoundedRows& x, int64_t from, int64_t end,
                     const Result& to) {
  if (count) by_whole_kind(w.stored, [&](auto kind) { rounded_blocks<kind>(count, w, x, from, end, to); });
}
