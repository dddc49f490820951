// Weight types: those of GGUF files with 2 to 8 bits per weight. Weights are repacked in memory, at the same width.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "vectors.h"

constexpr int panel = 32;              // outputs (rows of the weight) that are interleaved in memory
constexpr int group = 32;              // inputs that are unpacked together; in K-quants they have one or two sub-blocks
constexpr int vectors = panel / lanes;  // vectors of outputs in a panel

enum WeightType : int64_t {
  float32, bfloat16, float16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs,
  three_bits  // our own, for draft models: blocks of 32 with a float16 scale and 3-bit quants
};

// Layout of a quantised type: weight = (quant - offset) * scale - min; types with a min per block add it.
//   block: inputs that share float16 scales, 32 or (super-blocks) 256; words: 4-byte words of quants in a block
//   sub_block: inputs that share an integer sub-scale, which multiplies the scale; 0: there are no sub-blocks
//   mins: whether there are mins: a second float16, in super-blocks times an integer for each sub-block
struct Layout {
  int file_bytes, block, words, sub_block, offset;
  bool mins;
};

constexpr Layout layout_of(int64_t type) {
  switch (type) {
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

constexpr bool is_quantised(int64_t type) { return type >= q4_0; }

// A block of a panel in memory, for its 32 outputs: float16 scales [32]; float16 mins [32]; integer sub-scales
// [block / sub_block][32], which in q2_k share a byte with the sub-mins; sub-mins likewise; then the quants, words
// [2][words][16 outputs]. A word has the corresponding byte of four consecutive inputs, packed as in the file.
constexpr int64_t sub_scales_at(Layout l) { return l.mins ? 4 * panel : 2 * panel; }
constexpr int64_t sub_scales_bytes(Layout l) { return l.sub_block ? l.block / l.sub_block * panel : 0; }
constexpr int64_t quants_at(int64_t type) {
  const Layout l = layout_of(type);
  return sub_scales_at(l) + sub_scales_bytes(l) * (l.mins && type != q2_k ? 2 : 1);
}
constexpr int64_t block_bytes(int64_t type) { return quants_at(type) + layout_of(type).words * panel * 4; }

constexpr int max_quant(int64_t type) {
  switch (type) {
    case q2_k: return 3;
    case q3_k: case three_bits: return 7;
    case q4_0: case q4_1: case q4_k: return 15;
    case q5_0: case q5_1: case q5_k: return 31;
    case q6_k: return 63;
    default: return 255;
  }
}

// The scales and mins of a vector of outputs in a block; i is the index of a sub-block.
template <WeightType type>
struct Scales {
  static constexpr Layout l = layout_of(type);
  Floats scale, min;
  const uint8_t* sub_scales;  // of this vector

  Scales() = default;
  Scales(const uint8_t* block, int vector) : scale(load_float16(block + 2 * lanes * vector)), min{} {
    if (l.mins) min = load_float16(block + 2 * panel + 2 * lanes * vector);
    sub_scales = block + sub_scales_at(l) + lanes * vector;
  }

  Ints sub_scale(int i) const {
    const Ints bytes = load_int8(sub_scales + i * panel);
    return type == q2_k ? bytes & 15 : bytes;
  }

  Ints sub_min(int i) const {
    if constexpr (type == q2_k) return load_int8(sub_scales + i * panel) >> 4 & 15;
    else return load_int8(sub_scales + sub_scales_bytes(l) + i * panel);
  }

  // weight = quant * multiplier + addend.
  Floats multiplier(int i) const {
    if constexpr (l.sub_block == 0) return scale;
    else return to_floats(sub_scale(i)) * scale;
  }

  Floats addend(int i, Floats multiplier) const {
    if constexpr (l.mins && l.sub_block == 0) return min;
    else if constexpr (l.mins) return to_floats(sub_min(i)) * -min;
    else return multiplier * float(-l.offset);
  }
};

// Unpacks quants: the bytes of each lane's word become the unsigned quants of four consecutive inputs.
template <WeightType type>
struct Quants {
  const uint8_t* words;  // of a vector of outputs in a block

  Quants() = default;
  Quants(const uint8_t* words) : words(words) {}
  Quants(const uint8_t* block, int vector) {
    constexpr int in_sixteen = 16 / lanes;
    words = block + quants_at(type);
    words += (vector / in_sixteen * layout_of(type).words * 16 + vector % in_sixteen * lanes) * 4;
  }

  // Word v of group g of the block. g, or at least the part of it that selects bits, has to be a compile-time constant:
  // shifts by a variable are slower.
  Ints at(uint64_t g, int v) const {
    if constexpr (type == q8_0) return packed(8 * g + v);
    else if constexpr (type == q4_0 || type == q4_1) return nibbles(packed(v & 3), v);
    else if constexpr (type == iq4_nl) return iq4_codebook(nibbles(packed(v & 3), v));
    else if constexpr (type == iq4_xs) return iq4_codebook(nibbles(packed(4 * g + (v & 3)), v));
    else if constexpr (type == q5_0 || type == q5_1)
      return nibbles(packed(1 + (v & 3)), v) | (v < 4 ? packed(0) << (4 - v) : packed(0) >> (v - 4)) & 0x10101010;
    else if constexpr (type == q4_k) return move_bits(packed(g / 2 * 8 + v), 4 * (g & 1), 0) & 0x0f0f0f0f;
    else if constexpr (type == q5_k)
      return move_bits(packed(8 + g / 2 * 8 + v), 4 * (g & 1), 0) & 0x0f0f0f0f |
             move_bits(packed(v), g, 4) & 0x10101010;
    else if constexpr (type == q6_k)
      return move_bits(packed(g / 4 * 16 + 8 * (g & 1) + v), 2 * (g & 2), 0) & 0x0f0f0f0f |
             move_bits(packed(32 + g / 4 * 8 + v), 2 * (g & 3), 4) & 0x30303030;
    else if constexpr (type == q2_k) return move_bits(packed(g / 4 * 8 + v), 2 * (g & 3), 0) & 0x03030303;
    else if constexpr (type == three_bits)  // a byte holds two quants; the bits left over of three bytes hold two more
      return v < 6 ? packed(v / 2) >> 3 * (v % 2) & 0x07070707
                   : packed(v - 6) >> 6 & 0x03030303 | packed(2) >> (v - 2) & 0x04040404;
    else
      return move_bits(packed(8 + g / 4 * 8 + v), 2 * (g & 3), 0) & 0x03030303 |
             move_bits(packed(v), g, 2) & 0x04040404;
  }

 private:
  Ints packed(uint64_t n) const { return load<Ints>(words + n * 64); }

  static Ints nibbles(Ints packed, int v) { return (v < 4 ? packed : packed >> 4) & 0x0f0f0f0f; }

  // Moves bit `from` of each word to bit `to`.
  static Ints move_bits(Ints word, int from, int to) { return to > from ? word << (to - from) : word >> (from - to); }
};

// Calls use(g) with the index of a group in its block as a constant.
template <WeightType type, int last = layout_of(type).block / group - 1, class Use>
inline void with_constant_group(int g, Use use) {
  if constexpr (last > 0)
    if (g < last) return with_constant_group<type, last - 1>(g, use);
  use(std::integral_constant<int, last>());
}

// Spreads the bits of a byte over four: bits 0 to 3 become bit 0 of bytes 0 to 3, bits 4 to 7 become bit 1 of them.
inline uint32_t spread_bits(uint32_t byte) {
  uint32_t word = 0;
  for (int i = 0; i < 4; i++) word |= (byte >> i & 1) << 8 * i | (byte >> (4 + i) & 1) << (8 * i + 1);
  return word;
}

inline uint32_t load_word(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

// The quants of a block in the file, as words [words].
template <WeightType type>
inline void read_quants(const uint8_t* file_block, uint32_t* out) {
  constexpr Layout l = layout_of(type);
  const auto copy = [&](int to, int from, int count) { std::memcpy(out + to, file_block + from, 4 * count); };
  if constexpr (type == q5_0 || type == q5_1) {
    constexpr int high_bits = l.mins ? 4 : 2;
    out[0] = 0;
    for (int i = 0; i < 4; i++) out[0] |= spread_bits(file_block[high_bits + i]) << 2 * i;
    copy(1, high_bits + 4, 4);
  } else if constexpr (type == q8_0) {
    for (int i = 0; i < 8; i++) out[i] = load_word(file_block + 2 + 4 * i) ^ 0x80808080u;
  } else if constexpr (type == q2_k || type == q4_k || type == q5_k) {
    copy(0, 16, l.words);
  } else if constexpr (type == q3_k || type == q6_k) {
    copy(0, 0, l.words);
  } else if constexpr (type == iq4_xs) {
    copy(0, 8, l.words);
  } else {
    copy(0, l.mins ? 4 : 2, l.words);
  }
}

// The sub-scales and sub-mins of a block in the file, [block / sub_block] each.
template <WeightType type>
inline void read_sub_scales(const uint8_t* file_block, uint8_t* scales, uint8_t* mins) {
  if constexpr (type == q2_k) std::memcpy(scales, file_block, 16);
  if constexpr (type == q6_k) std::memcpy(scales, file_block + 192, 16);
  if constexpr (type == q4_k || type == q5_k) {
    const uint8_t* s = file_block + 4;
    for (int i = 0; i < 4; i++) {
      scales[i] = s[i] & 63, mins[i] = s[4 + i] & 63;
      scales[4 + i] = (s[8 + i] & 15) | s[i] >> 6 << 4, mins[4 + i] = s[8 + i] >> 4 | s[4 + i] >> 6 << 4;
    }
  }
  if constexpr (type == q3_k) {
    const uint8_t* s = file_block + 96;
    for (int i = 0; i < 16; i++)
      scales[i] = ((s[i % 8] >> (i < 8 ? 0 : 4) & 15) | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
  }
  if constexpr (type == iq4_xs)
    for (int i = 0; i < 8; i++)
      scales[i] = ((file_block[4 + i / 2] >> 4 * (i % 2) & 15) | (file_block[2 + i / 4] >> 2 * (i % 4) & 3) << 4) - 32;
}

constexpr int file_scale_at(int64_t type) { return type == q2_k ? 80 : type == q3_k ? 108 : type == q6_k ? 208 : 0; }

// Repacks rows of a file [out][in / block] into the panel of this index. `order` gives the file's row for each output;
// null: they are in order.
template <WeightType type>
void repack_panel(const uint8_t* file, int64_t in, int64_t out, const int64_t* order, int64_t index, uint8_t* to) {
  constexpr Layout l = layout_of(type);
  constexpr int sub_blocks = l.sub_block ? l.block / l.sub_block : 0;
  const int64_t blocks = in / l.block;
  const uint8_t* rows[panel];
  for (int lane = 0; lane < panel; lane++) {
    const int64_t output = index * panel + lane;
    rows[lane] = output < out ? file + (order ? order[output] : output) * blocks * l.file_bytes : nullptr;
  }
  uint8_t* block = to;
  for (int64_t b = 0; b < blocks; b++, block += block_bytes(type)) {  // a block stays in L1 while it is filled
    for (int lane = 0; lane < panel; lane++) {
      const bool exists = rows[lane];
      const uint8_t* from = exists ? rows[lane] + b * l.file_bytes : nullptr;
      uint32_t words[l.words + 1] = {};
      uint8_t sub_scales[16] = {}, sub_mins[16] = {}, scales[4] = {};
      if (exists) {
        read_quants<type>(from, words);
        read_sub_scales<type>(from, sub_scales, sub_mins);
        for (int64_t line = 0; line < l.file_bytes; line += 64) __builtin_prefetch(from + 8 * l.file_bytes + line);
        std::memcpy(scales, from + file_scale_at(type), l.mins ? 4 : 2);
      }
      std::memcpy(block + 2 * lane, scales, 2);
      if (l.mins) std::memcpy(block + 2 * panel + 2 * lane, scales + 2, 2);
      for (int i = 0; i < sub_blocks; i++) {
        block[sub_scales_at(l) + i * panel + lane] = sub_scales[i];
        if (l.mins && type != q2_k) block[sub_scales_at(l) + sub_scales_bytes(l) + i * panel + lane] = sub_mins[i];
      }
      uint8_t* quants = block + quants_at(type) + (lane / 16 * l.words * 16 + lane % 16) * 4;
      for (int i = 0; i < l.words; i++) std::memcpy(quants + 64 * i, words + i, 4);
    }
  }
}

// Calls use(type) with a quantised type as a constant.
template <class Use>
inline void dispatch_quantised(int64_t type, Use use) {
  switch (type) {
#define CASE(name) case name: return use(std::integral_constant<WeightType, name>());
    CASE(q4_0) CASE(q4_1) CASE(q5_0) CASE(q5_1) CASE(q8_0) CASE(q2_k) CASE(q3_k) CASE(q4_k) CASE(q5_k) CASE(q6_k)
    CASE(iq4_nl) CASE(iq4_xs) CASE(three_bits)
#undef CASE
    default: return;
  }
}
