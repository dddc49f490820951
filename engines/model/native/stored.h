// Weights as a GGUF file stores them: integers of 2 to 8 bits with their scales, put in another order and no wider.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "vectors.h"

constexpr int block = 32;              // outputs that lie together
constexpr int group = 32;              // inputs that do; and whose numbers share a scale, or 16 of them
constexpr int vectors = block / lanes;  // of outputs

enum Stored : int64_t {
  float32, bfloat16, float16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs,
  three_bits  // ours, of what only drafts: a float16 scale, and three words
};

// How a type of llama.cpp's is stored: weight = (number - offset) * scale - least, or + least where a group has its own.
//   span: inputs that share float16 scales; words: of 4 bytes that hold the numbers of a span of one output
//   each: inputs that share a small whole number by which the scale is multiplied, 0: there is none
//   least: whether there is a second float16, times a small number of its own in spans of 256
struct Form {
  int file_size, span, words, each, offset;
  bool least;
};

constexpr Form form(int64_t stored) {
  switch (stored) {
    case q4_0: return {18, 32, 4, 0, 8, false};
    case q4_1: return {20, 32, 4, 0, 0, true};
    case q5_0: return {22, 32, 5, 0, 16, false};
    case q5_1: return {24, 32, 5, 0, 0, true};
    case q8_0: return {34, 32, 8, 0, 128, false};
    case q2_k: return {84, 256, 16, 16, 0, true};
    case q3_k: return {110, 256, 24, 16, 4, false};
    case q4_k: return {144, 256, 32, 32, 0, true};
    case q5_k: return {176, 256, 40, 32, 0, true};
    case q6_k: return {210, 256, 48, 16, 32, false};
    case iq4_nl: return {18, 32, 4, 0, 128, false};
    case iq4_xs: return {136, 256, 32, 32, 128, false};
    case three_bits: return {14, 32, 3, 0, 4, false};
    default: return {0, 32, 0, 0, 0, false};
  }
}

constexpr bool whole_numbers(int64_t stored) { return stored >= q4_0; }
constexpr bool from_table(int64_t stored) { return stored == iq4_nl || stored == iq4_xs; }

// A span of 32 outputs: scales float16 [32]; the second ones [32]; small numbers [span / each][32], of q2_k both in one
// byte; those of the second scales, the same; then words [2][words][16 outputs]. A word has the same byte of an output's
// four next inputs, as the file has it.
constexpr int64_t small_at(Form f) { return f.least ? 4 * block : 2 * block; }
constexpr int64_t small_size(Form f) { return f.each ? f.span / f.each * block : 0; }
constexpr int64_t words_at(int64_t stored) {
  const Form f = form(stored);
  return small_at(f) + small_size(f) * (f.least && stored != q2_k ? 2 : 1);
}
constexpr int64_t span_size(int64_t stored) { return words_at(stored) + form(stored).words * block * 4; }

// The largest number that is stored.
constexpr int most(int64_t stored) {
  switch (stored) {
    case q2_k: return 3;
    case q3_k: case three_bits: return 7;
    case q4_0: case q4_1: case q4_k: return 15;
    case q5_0: case q5_1: case q5_k: return 31;
    case q6_k: return 63;
    default: return 255;
  }
}

// Of a vector of outputs in a span: scales, and the small numbers by which they are multiplied at a place.
template <Stored kind>
struct Scales {
  static constexpr Form f = form(kind);
  Floats scale, second;
  const uint8_t* small;  // of this vector

  Scales() = default;
  Scales(const uint8_t* span, int vector) : scale(halves(span + 2 * lanes * vector)), second{} {
    if (f.least) second = halves(span + 2 * block + 2 * lanes * vector);
    small = span + small_at(f) + lanes * vector;
  }

  Ints times(int place) const {
    const Ints found = ints(small + place * block);
    return kind == q2_k ? found & 15 : found;
  }

  // Of the second scale.
  Ints least(int place) const {
    if constexpr (kind == q2_k) return ints(small + place * block) >> 4 & 15;
    else return ints(small + small_size(f) + place * block);
  }

  // Weight = number * factor + added.
  Floats factor(int place) const {
    if constexpr (f.each == 0) return scale;
    else return floats(times(place)) * scale;
  }

  Floats added(int place, Floats factor) const {
    if constexpr (f.least && f.each == 0) return second;
    else if constexpr (f.least) return floats(least(place)) * -second;
    else return factor * float(-f.offset);
  }
};

// Four inputs of a group of 32: the bytes of each lane's word are their numbers, without a sign.
template <Stored kind>
struct Numbers {
  const uint8_t* words;  // of a vector of outputs in a span

  Numbers() = default;
  Numbers(const uint8_t* words) : words(words) {}
  Numbers(const uint8_t* span, int vector) {
    constexpr int in_sixteen = 16 / lanes;
    words = span + words_at(kind) + (vector / in_sixteen * form(kind).words * 16 + vector % in_sixteen * lanes) * 4;
  }

  // Word v of the group at a place in its span. The place has to be a constant, or its remainder: else shifting takes
  // longer.
  Ints at(uint64_t place, int v) const {
    if constexpr (kind == q8_0) return line(8 * place + v);
    else if constexpr (kind == q4_0 || kind == q4_1) return four(line(v & 3), v);
    else if constexpr (kind == iq4_nl) return listed(four(line(v & 3), v));
    else if constexpr (kind == iq4_xs) return listed(four(line(4 * place + (v & 3)), v));
    else if constexpr (kind == q5_0 || kind == q5_1)
      return four(line(1 + (v & 3)), v) | (v < 4 ? line(0) << (4 - v) : line(0) >> (v - 4)) & 0x10101010;
    else if constexpr (kind == q4_k) return moved(line(place / 2 * 8 + v), 4 * (place & 1), 0) & 0x0f0f0f0f;
    else if constexpr (kind == q5_k)
      return moved(line(8 + place / 2 * 8 + v), 4 * (place & 1), 0) & 0x0f0f0f0f |
             moved(line(v), place, 4) & 0x10101010;
    else if constexpr (kind == q6_k)
      return moved(line(place / 4 * 16 + 8 * (place & 1) + v), 2 * (place & 2), 0) & 0x0f0f0f0f |
             moved(line(32 + place / 4 * 8 + v), 2 * (place & 3), 4) & 0x30303030;
    else if constexpr (kind == q2_k) return moved(line(place / 4 * 8 + v), 2 * (place & 3), 0) & 0x03030303;
    else if constexpr (kind == three_bits)  // a byte has two of them; what is left of three bytes has two more
      return v < 6 ? line(v / 2) >> 3 * (v % 2) & 0x07070707
                   : line(v - 6) >> 6 & 0x03030303 | line(2) >> (v - 2) & 0x04040404;
    else
      return moved(line(8 + place / 4 * 8 + v), 2 * (place & 3), 0) & 0x03030303 |
             moved(line(v), place, 2) & 0x04040404;
  }

 private:
  Ints line(uint64_t n) const { return load<Ints>(words + n * 64); }

  static Ints four(Ints line, int v) { return (v < 4 ? line : line >> 4) & 0x0f0f0f0f; }

  // Bit `from` of each word becomes bit `to`.
  static Ints moved(Ints words, int from, int to) { return to > from ? words << (to - from) : words >> (from - to); }
};

// Calls use(place) with the place of a group in its span as a constant.
template <Stored kind, int last = form(kind).span / group - 1, class Use>
inline void by_place(int place, Use use) {
  if constexpr (last > 0)
    if (place < last) return by_place<kind, last - 1>(place, use);
  use(std::integral_constant<int, last>());
}

// Spreads the bits of a byte: bit i of the first four to byte i, of the others to the bit above it.
inline uint32_t spread(uint32_t byte) {
  uint32_t found = 0;
  for (int i = 0; i < 4; i++) found |= (byte >> i & 1) << 8 * i | (byte >> (4 + i) & 1) << (8 * i + 1);
  return found;
}

inline uint32_t word_at(const uint8_t* at) {
  uint32_t found;
  std::memcpy(&found, at, 4);
  return found;
}

// The words of a span in the file, [words].
template <Stored kind>
inline void words_of(const uint8_t* in_file, uint32_t* out) {
  constexpr Form f = form(kind);
  const auto copy = [&](int to, int from, int count) { std::memcpy(out + to, in_file + from, 4 * count); };
  if constexpr (kind == q5_0 || kind == q5_1) {
    constexpr int at = f.least ? 4 : 2;
    out[0] = 0;
    for (int i = 0; i < 4; i++) out[0] |= spread(in_file[at + i]) << 2 * i;
    copy(1, at + 4, 4);
  } else if constexpr (kind == q8_0) {
    for (int i = 0; i < 8; i++) out[i] = word_at(in_file + 2 + 4 * i) ^ 0x80808080u;
  } else if constexpr (kind == q2_k) {
    copy(0, 16, f.words);
  } else if constexpr (kind == q4_k || kind == q5_k) {
    copy(0, 16, f.words);
  } else if constexpr (kind == q3_k || kind == q6_k) {
    copy(0, 0, f.words);
  } else if constexpr (kind == iq4_xs) {
    copy(0, 8, f.words);
  } else {
    copy(0, f.least ? 4 : 2, f.words);
  }
}

// The small numbers of a span in the file, [span / each], and those of the second scales.
template <Stored kind>
inline void small_of(const uint8_t* in_file, uint8_t* out, uint8_t* second) {
  if constexpr (kind == q2_k) std::memcpy(out, in_file, 16);
  if constexpr (kind == q6_k) std::memcpy(out, in_file + 192, 16);
  if constexpr (kind == q4_k || kind == q5_k) {
    const uint8_t* s = in_file + 4;
    for (int i = 0; i < 4; i++) {
      out[i] = s[i] & 63, second[i] = s[4 + i] & 63;
      out[4 + i] = (s[8 + i] & 15) | s[i] >> 6 << 4, second[4 + i] = s[8 + i] >> 4 | s[4 + i] >> 6 << 4;
    }
  }
  if constexpr (kind == q3_k) {
    const uint8_t* s = in_file + 96;
    for (int i = 0; i < 16; i++)
      out[i] = ((s[i % 8] >> (i < 8 ? 0 : 4) & 15) | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
  }
  if constexpr (kind == iq4_xs)
    for (int i = 0; i < 8; i++)
      out[i] = ((in_file[4 + i / 2] >> 4 * (i % 2) & 15) | (in_file[2 + i / 4] >> 2 * (i % 4) & 3) << 4) - 32;
}

constexpr int scale_in_file(int64_t stored) {
  return stored == q2_k ? 80 : stored == q3_k ? 108 : stored == q6_k ? 208 : 0;
}

// A block of 32 outputs from the rows of a file [out][in / span]; `order`: which row is that of each output, or null:
// the same one.
template <Stored kind>
void reorder_block(const uint8_t* in_file, int64_t in, int64_t out, const int64_t* order, int64_t number, uint8_t* to) {
  constexpr Form f = form(kind);
  constexpr int small = f.each ? f.span / f.each : 0;
  const int64_t spans = in / f.span;
  const uint8_t* rows[block];
  for (int lane = 0; lane < block; lane++) {
    const int64_t output = number * block + lane;
    rows[lane] = output < out ? in_file + (order ? order[output] : output) * spans * f.file_size : nullptr;
  }
  uint8_t* span = to;
  for (int64_t s = 0; s < spans; s++, span += span_size(kind)) {  // one that stays in the nearest cache
    for (int lane = 0; lane < block; lane++) {
      const bool there = rows[lane];
      const uint8_t* from = there ? rows[lane] + s * f.file_size : nullptr;
      uint32_t words[f.words + 1] = {};
      uint8_t first[16] = {}, second[16] = {}, scales[4] = {};
      if (there) {
        words_of<kind>(from, words);
        small_of<kind>(from, first, second);
        for (int64_t line = 0; line < f.file_size; line += 64) __builtin_prefetch(from + 8 * f.file_size + line);
        std::memcpy(scales, from + scale_in_file(kind), f.least ? 4 : 2);
      }
      std::memcpy(span + 2 * lane, scales, 2);
      if (f.least) std::memcpy(span + 2 * block + 2 * lane, scales + 2, 2);
      for (int i = 0; i < small; i++) {
        span[small_at(f) + i * block + lane] = first[i];
        if (f.least && kind != q2_k) span[small_at(f) + small_size(f) + i * block + lane] = second[i];
      }
      uint8_t* own = span + words_at(kind) + (lane / 16 * f.words * 16 + lane % 16) * 4;
      for (int i = 0; i < f.words; i++) std::memcpy(own + 64 * i, words + i, 4);
    }
  }
}

// Calls use(kind) with how a weight is stored as a constant.
template <class Use>
inline void by_whole_kind(int64_t stored, Use use) {
  switch (stored) {
#define OF_KIND(name) case name: return use(std::integral_constant<Stored, name>());
    OF_KIND(q4_0) OF_KIND(q4_1) OF_KIND(q5_0) OF_KIND(q5_1) OF_KIND(q8_0) OF_KIND(q2_k) OF_KIND(q3_k) OF_KIND(q4_k)
    OF_KIND(q5_k) OF_KIND(q6_k) OF_KIND(iq4_nl) OF_KIND(iq4_xs) OF_KIND(three_bits)
#undef OF_KIND
    default: return;
  }
}
