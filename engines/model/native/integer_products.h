// Integer products: activations are quantised to 8 bits, as in llama.cpp, and multiplied by the quants of a weight.
//
// Integer sums are exact in any order. The float32 sums over blocks are made in a fixed order for each row and output,
// independently of the number of rows.
#pragma once

#include <cmath>
#include <vector>

#include "quants.h"
#include "team.h"

// A weight [out, in]: panels [out / 32], of blocks [in / block] (``quants.h``) or, for float32, bfloat16 and float16,
// of values [in][32 outputs]. The last panel may be padded, and `in` may be padded with zeros. The outputs of `next`,
// which has as many inputs, follow: parts of a fused weight may have different types.
struct Weight {
  const uint8_t* panels;
  const float* bias;
  int64_t in, out, type, int8;  // int8: activations are quantised to 8 bits
  const Weight* next;
};

constexpr int float_bytes(int64_t type) { return type == float32 ? 4 : 2; }

inline int64_t own_panels(const Weight& w) { return (w.out + panel - 1) / panel; }
inline int64_t panel_bytes(const Weight& w) {
  if (!is_quantised(w.type)) return w.in * panel * float_bytes(w.type);
  return w.in / layout_of(w.type).block * block_bytes(w.type);
}
inline int64_t all_panels(const Weight& w) { return own_panels(w) + (w.next ? all_panels(*w.next) : 0); }
inline int64_t all_outputs(const Weight& w) { return w.out + (w.next ? all_outputs(*w.next) : 0); }

// Where the outputs of a product go: y [rows][out].
struct Output {
  float* y;
  int64_t stride;
  bool accumulate;  // adds them to what is there
};

inline void store_outputs(const Weight& w, const Output& to, int64_t row, int64_t output, Floats values) {
  const int64_t left = w.out - output;
  if (left <= 0) return;
  float* y = to.y + row * to.stride + output;
  if (left >= lanes) {
    if (w.bias) values += load(w.bias + output);
    store(y, to.accumulate ? load(y) + values : values);
    return;
  }
  for (int i = 0; i < left; i++) {
    const float value = values[i] + (w.bias ? w.bias[output + i] : 0);
    y[i] = to.accumulate ? y[i] + value : value;
  }
}

constexpr int tile_rows = 8;  // at most

// A tile of rows that are multiplied by a panel together. Tiles have about equally many rows. `width` is the number of
// rows that the kernel is compiled for, which may be one more.
struct RowTile {
  int64_t first, rows;
  int width;

  static int64_t tiles(int64_t all_rows) { return (all_rows + tile_rows - 1) / tile_rows; }
  static RowTile at(int64_t all_rows, int64_t index) {
    const int64_t n = tiles(all_rows), first = all_rows * index / n, rows = all_rows * (index + 1) / n - first;
    return {first, rows, int(rows <= 4 ? rows : (rows + 1) / 2 * 2)};
  }
};

// The activations of a tile quantised to 8 bits, with scales for blocks of 32 or of 256 inputs. Rows are interleaved,
// 32 inputs at a time.
struct QuantisedTile {
  int8_t* quants;  // [in / 32][width][32]
  float* scales;   // [in / block][width]
  float *sums, *float16_sums;  // blocks of 32: scale * sum of the quants [in / 32][width]; and rounded to float16, as
                               // llama.cpp does for weights with mins
  int16_t *sums_of_16, *sums_of_32;  // blocks of 256: sums of so many quants [in / 32 or in / 64][width][2]
};

// Not float(_Float16(value)) where it can be avoided: GCC 12 drops both conversions from vector code for AVX512-FP16.
inline float round_to_float16(float value) {
#ifdef __F16C__
  return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
  return float(_Float16(value));
#endif
}

// Rounds x [count] * factor, which lies in -127 .. 127, to integers. Returns their sum.
inline int round_to_int8(const float* x, float factor, int count, int8_t* out) {
  Ints total{};
  for (int i = 0; i < count; i += lanes) {
    const Floats shifted = load(x + i) * factor + 12582912.0f;
    const Ints quants = (Ints)shifted - 0x4b400000;
    const Bytes bytes = __builtin_convertvector(quants, Bytes);
    std::memcpy(out + i, &bytes, sizeof bytes);
    total += quants;
  }
  return sum(total);
}

// The bits of magnitudes are in the order of their values, infinity and nan last.
inline float max_magnitude(const float* x, int count) {
  Ints max = {};
  for (int i = 0; i < count; i += lanes) {
    const Ints magnitude = (Ints)load(x + i) & 0x7fffffff;
    max = (magnitude > max) ? magnitude : max;
  }
  const int32_t bits = max_lane(max);
  float found;
  std::memcpy(&found, &bits, sizeof found);
  return found;
}

// Quantises the block of a row that begins with this input: of 32 as llama.cpp's Q8_0 and Q8_1, of 256 as its Q8_K.
inline void quantise_block(const float* x, int block, int64_t input, int64_t row, int64_t width,
                           const QuantisedTile& to) {
  const float max = max_magnitude(x + input, block), inverse = max ? 127 / max : 0;
  int8_t* quants = to.quants + input * width + row * group;
  const int64_t at = input / block * width + row;
  if (block == 256) {
    to.scales[at] = max ? 1 / inverse : 0;
    for (int64_t i = 0; i < block; i += 32) {
      int16_t* sums = to.sums_of_16 + ((input + i) / 32 * width + row) * 2;
      for (int half = 0; half < 2; half++)
        sums[half] = round_to_int8(x + input + i + 16 * half, inverse, 16, quants + i * width + 16 * half);
      to.sums_of_32[((input + i) / 64 * width + row) * 2 + i / 32 % 2] = sums[0] + sums[1];
    }
    return;
  }
  const float scale = max / 127, total = round_to_int8(x + input, inverse, block, quants);
  to.scales[at] = round_to_float16(scale);
  to.sums[at] = round_to_float16(scale) * total, to.float16_sums[at] = round_to_float16(scale * total);
}

// Rows quantised for all parts of a weight: with blocks of 32 or of 256, or with both.
class QuantisedRows {
 public:
  // Allocates memory for so many rows.
  void reserve(const Weight& w, int64_t count) {
    for (const Weight* part = &w; part; part = part->next)
      if (part->int8) of(*part).reserve(RowTile::tiles(count) * tile_rows * w.in);
  }

  // Quantises x [count][in], together with the other threads, with the block sizes that the weight needs.
  void fill(const Weight& w, int64_t count, const float* x, Thread& thread) {
    bool needed[2] = {};
    for (const Weight* part = &w; part; part = part->next)
      if (part->int8) needed[super_blocks(*part)] = true;
    for (int super = 0; super < 2; super++)
      if (needed[super]) buffers[super].fill(super ? 256 : group, w.in, count, x, thread);
    if (needed[0] || needed[1]) thread.barrier();
  }

  QuantisedTile tile(const Weight& part, int64_t i) const { return buffers[super_blocks(part)].tile(i, part.in); }

 private:
  struct Buffer {
    std::vector<int8_t> quants;
    std::vector<float> scales, sums;

    void reserve(int64_t count) {
      if (int64_t(quants.size()) >= count) return;
      quants.resize(count), scales.resize(count / group), sums.resize(count / group * 2);
    }

    QuantisedTile tile(int64_t index, int64_t in) const {
      const int64_t start = index * tile_rows * in;
      float *scale = (float*)scales.data() + start / group, *sum = (float*)sums.data() + start / group * 2;
      float* second = sum + tile_rows * in / group;
      return {(int8_t*)quants.data() + start, scale, sum, second, (int16_t*)sum, (int16_t*)second};
    }

    void fill(int block, int64_t in, int64_t count, const float* x, Thread& thread) const {
      const int64_t blocks = in / block;
      for (int64_t index = 0; index < RowTile::tiles(count); index++) {
        const RowTile rows = RowTile::at(count, index);
        const QuantisedTile to = tile(index, in);
        // One thread quantises a block of all rows, since they share cache lines.
        for (int64_t b = thread.begin(blocks); b < thread.end(blocks); b++)
          for (int64_t row = 0; row < rows.rows; row++)
            quantise_block(x + (rows.first + row) * in, block, b * block, row, rows.width, to);
      }
    }
  } buffers[2];

  static bool super_blocks(const Weight& part) { return layout_of(part.type).block == 256; }
  Buffer& of(const Weight& part) { return buffers[super_blocks(part)]; }
};

// Prefetches what will be read soon after these bytes: first into the L2 cache, which can have many requests in flight,
// later into L1. Where this is a function of its own, GCC drops calls, since prefetches are no side effects.
__attribute__((always_inline)) inline void prefetch_after(const uint8_t* at, int64_t size) {
  for (int64_t line = 0; line < size; line += 64) {
    __builtin_prefetch(at + line + (12 << 10), 0, 2);
    __builtin_prefetch(at + line + (4 << 10), 0, 3);
  }
}

// The outputs of panels `from` to `end` for quantised rows (``integer_products.cpp``).
void integer_product(int64_t count, const Weight& w, const QuantisedRows& x, int64_t from, int64_t end,
                     const Output& to);
