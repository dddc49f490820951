// Vectors of 16 numbers; the compiler makes of them what the processor has.
#pragma once

#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

constexpr int lanes = 16;
typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * lanes)));
typedef int8_t Bytes __attribute__((vector_size(lanes)));

template <class Vector>
inline Vector load(const void* at) {
  Vector found;
  std::memcpy(&found, at, sizeof found);
  return found;
}

inline Floats load(const float* at) { return load<Floats>(at); }

inline void store(float* at, Floats numbers) { std::memcpy(at, &numbers, sizeof numbers); }

inline Floats all(float number) { return Floats{} + number; }

inline Floats floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }

// Numbers of half precision, not infinite.
inline Floats halves(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)at));
#else
  const Ints bits = __builtin_convertvector(load<Halves>(at), Ints);
  const Floats size = (Floats)((bits & 0x7fff) << 13) * 0x1p112f;  // the exponents differ by 112
  return (Floats)((Ints)size | (bits & 0x8000) << 16);
#endif
}

// Numbers of bfloat16: the upper halves of floats.
inline Floats upper_halves(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)at)), 16);
#else
  return (Floats)(__builtin_convertvector(load<Halves>(at), Ints) << 16);
#endif
}

inline Floats of_bytes(const uint8_t* at) {
#ifdef __AVX512F__
  return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)at)));
#else
  return floats(__builtin_convertvector(load<Bytes>(at), Ints));
#endif
}

// The whole number of 4 bits at place k of each word.
inline Floats of_four_bits(Ints words, int k) {
#ifdef __AVX512F__
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return (Floats)_mm512_permutexvar_ps((__m512i)(words >> 4 * k), table);  // which looks at the lowest 4 bits alone
#else
  return floats(words >> 4 * k & 15);
#endif
}

inline float sum(Floats v) {
  for (int step = lanes / 2; step; step /= 2)
    for (int i = 0; i < step; i++) v[i] += v[i + step];
  return v[0];
}

inline float largest(Floats v) {
  float found = v[0];
  for (int i = 1; i < lanes; i++) found = v[i] > found ? v[i] : found;
  return found;
}

inline Floats chosen(Ints which, Floats yes, Floats no) { return (Floats)(((Ints)yes & which) | ((Ints)no & ~which)); }

// e^x to the last bits of a float, of x from -87 to 88; what lies outside is taken for the nearer end.
inline Floats exponential(Floats x) {
  x = chosen(x > -87.0f, x, all(-87.0f));
  x = chosen(x < 88.0f, x, all(88.0f));
  const Floats shifted = x * 1.44269504f + 12582912.0f, turns = shifted - 12582912.0f;  // rounds to whole numbers
  const Floats rest = turns * -1.42860677e-6f + (turns * -0.693145752f + x);
  Floats found = all(1.0f / 5040);
  for (float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) found = found * rest + factor;
  return (Floats)((Ints)found + ((Ints)shifted << 23));
}

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#endif

// The sum of each of 16 vectors, all in one order. The vector of place k is given at the index of k's bits reversed.
constexpr int reversed[lanes] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
inline Floats sums(Floats (&v)[lanes]) {
#define ADD_PAIRS(n, low, high) \
  for (int i = 0; i < n; i++) v[i] = SHUFFLED(v[i], v[i + n], low) + SHUFFLED(v[i], v[i + n], high);
#define EACH(...) __VA_ARGS__
  ADD_PAIRS(8, EACH(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
            EACH(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
  ADD_PAIRS(4, EACH(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
            EACH(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
  ADD_PAIRS(2, EACH(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29),
            EACH(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31))
  ADD_PAIRS(1, EACH(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
            EACH(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
  return v[0];
}
