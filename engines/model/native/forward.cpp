// Products with quantised weights, and the layers of Llama-like models, in float32 on the CPU.
//
// A row's result does not depend on how many other rows, threads or branches there are: each sum is always made in the
// same order.

#include <cmath>
#include <exception>
#include <memory>
#include <vector>

#include "attention.h"
#include "products.h"
#include "summaries.h"
#include "team.h"

namespace {

struct Layer {
  Weight qkv, output, gate_up, down;
  // Weights of RMS norms, multiplied by the square root of their length, or null where there is no norm: before
  // attention and MLP, of queries and keys, after attention and MLP.
  const float *norm, *mlp_norm, *head_norms, *after_norm, *after_mlp_norm;
  // joint_norm: one norm over all heads of a row; rope: whether there is RoPE, by the angles of rope_table
  int64_t joint_norm, rope, mask_kind, rope_table;
};

struct Model {
  const Layer* layers;
  const Weight *head, *embedding_weight;  // embedding_weight: a weight whose rows are the embedding, or null
  const float *embedding, *norm;          // else embedding [vocabulary][width]; norm: the final one, as in a layer
  int64_t layer_count, width, mlp, heads, kv_heads, dim, rope_dim, rope_tables, gelu;  // rope_dim: rotated part of dim
  double eps, score_scale, embedding_scale, residual_scale, logit_scale, score_cap, logit_cap;  // caps: 0 for none
  // A draft head of the EAGLE family, whose rows have features. fc: the weight [width, 2 width] over embedding and
  // feature; null (EAGLE-3): the layer reads both, normalised and concatenated. normed_residual: the residual stream
  // begins with the normalised feature.
  const Weight* fc;
  const float *embedding_norm, *feature_norm;
  int64_t normed_residual;
};

struct Rows {
  int64_t count, first_column;        // the rows go to the KV cache from first_column on
  const int64_t *tokens, *positions;  // [count]
  const float *cos, *sin;             // of all positions [positions][rope_tables][rope_dim]
  float* stream;                      // the residual stream [count][width]
  float *hidden, *logits;  // after the final norm [count - first_hidden][width]; [count - first_logits][vocabulary]
  int64_t first_hidden, first_logits;  // the first rows that have these
  float* cache;  // [layers][2 kv_heads][capacity][dim], keys first and in tiles, then values (``attention.h``)
  int64_t capacity;
  const float* const* masks;  // for each kind [count][first_column + count], 0: the column is visible; null: causal
  int64_t mask_kinds;
  const uint8_t* skipped;  // for each sublayer (attention and MLP of each layer), or null
  const float* features;   // [count][width] of a draft head, or null
  float* const* watched;   // copies of the stream [count][width] before the first sublayer and after each; or null
  void* summary;           // what the logits say (``Summary``), or null
};

// An array that is not initialised, since it is written before it is read.
template <class T>
struct Uninitialised : std::unique_ptr<T[]> {
  explicit Uninitialised(int64_t size) : std::unique_ptr<T[]>(new T[size]) {}
};

// Inputs of a product [rows][in]: rows of `width` values, padded with zeros to the inputs of the weight.
struct PaddedRows : Uninitialised<float> {
  PaddedRows(int64_t rows, int64_t in, int64_t width) : Uninitialised(rows * in) {
    for (float* row = get(); width < in && rows--; row += in) std::fill(row + width, row + in, 0.0f);
  }
};

constexpr int64_t partial_outputs = 1 << 23;  // of attention, floats that are held at once: 32 MB

struct Buffers {
  int64_t chunks, attending;  // rows whose attention is computed together
  PaddedRows fc_inputs, normed, attended, gated;
  Uninitialised<float> qkv, gate_up, sublayer, scratch, sums;
  QuantisedRows quantised;
  Uninitialised<Partial> partials;
  Uninitialised<int32_t> columns;  // [mask_kinds][count][first_column + count]
  Uninitialised<Visible> visible;  // [mask_kinds][count]
  Summariser summariser;

  Buffers(const Model& m, const Rows& rows, int64_t threads)
      : chunks((rows.first_column + rows.count + chunk - 1) / chunk),
        attending(std::max<int64_t>(partial_outputs / (m.heads * chunks * m.dim) / rows_at_once, 1) * rows_at_once),
        fc_inputs(m.fc ? rows.count : 0, m.fc ? m.fc->in : 0, 2 * m.width),
        normed(rows.count, m.layers->qkv.in, rows.features && !m.fc ? 2 * m.width : m.width),
        attended(rows.count, m.layers->output.in, m.heads * m.dim),
        gated(rows.count, m.layers->down.in, m.mlp),
        qkv(rows.count * (m.heads + 2 * m.kv_heads) * m.dim),
        gate_up(rows.count * 2 * m.mlp),
        sublayer(rows.count * m.width),
        scratch(threads * scratch_size(m)),
        sums(std::min(rows.count, attending) * m.heads * chunks * m.dim),
        partials(std::min(rows.count, attending) * m.heads * chunks),
        columns(rows.masks ? rows.mask_kinds * rows.count * (rows.first_column + rows.count) : 0),
        visible(rows.mask_kinds * rows.count),
        summariser(rows.summary ? rows.count - rows.first_logits : 0, m.head->out) {
    for (int64_t i = 0; i < m.layer_count; i++)
      for (const Weight* w : {&m.layers[i].qkv, &m.layers[i].output, &m.layers[i].gate_up, &m.layers[i].down})
        quantised.reserve(*w, rows.count);
    quantised.reserve(*m.head, rows.count);
    if (m.fc) quantised.reserve(*m.fc, rows.count);
  }

  // Floats that each thread needs in attention.
  static int64_t scratch_size(const Model& m) {
    return rows_at_once * (m.heads / m.kv_heads) * chunk + key_tile * m.dim;
  }
};

// RMS norm: x [size] over its root mean square, times a weight that is already multiplied by the square root of `size`.
// Without a weight x is copied.
void rms_norm(const float* x, const float* weight, int64_t size, double eps, float* out) {
  if (!weight) return (void)std::copy_n(x, size, out);
  Floats squares = {};
  for (int64_t i = 0; i < size; i += lanes) squares += load(x + i) * load(x + i);
  const float factor = 1 / std::sqrt(sum(squares) + float(size * eps));
  for (int64_t i = 0; i < size; i += lanes) store(out + i, load(x + i) * factor * load(weight + i));
}

void multiply_by(float factor, float* x, int64_t size) {
  for (int64_t i = 0; i < size; i++) x[i] *= factor;
}

void soft_cap(float cap, float* x, int64_t size) {
  for (int64_t i = 0; i < size; i++) x[i] = cap * std::tanh(x[i] / cap);
}

// The activation function of the MLP: SiLU, x / (1 + e^-x), or GELU by the tanh approximation, x / (1 + e^-2y).
inline Floats activation_function(Floats x, bool gelu) {
  return x / (1 + exponential(gelu ? -1.5957691216f * (x + 0.044715f * x * x * x) : -x));
}

class ForwardPass {
 public:
  ForwardPass(const Model& model, const Rows& rows, Buffers& buffers, Thread& thread)
      : m(model), rows(rows), b(buffers), thread(thread) {}

  void run() {
    embed();
    find_visible();
    copy_stream(0);
    for (int64_t i = 0; i < 2 * m.layer_count; i++) {
      if (!rows.skipped || !rows.skipped[i]) i % 2 ? mlp(m.layers[i / 2]) : attention(m.layers[i / 2], i / 2);
      copy_stream(i + 1);
    }
    compute_logits();
  }

 private:
  const Model& m;
  const Rows& rows;
  Buffers& b;
  Thread& thread;

  // Calls use(i) for all items, shared out among the threads.
  template <class Use>
  void for_each(int64_t items, Use use) {
    for (int64_t i = thread.begin(items); i < thread.end(items); i++) use(i);
    thread.barrier();
  }

  // Calls use(from, end) for all panels. Most are scheduled statically, the last ones dynamically, since a core may be
  // slower than another for a while.
  template <class Use>
  void for_panels(int64_t panels, Use use) {
    const int64_t threads = thread.team.threads, dynamic = panels / (8 * threads) * threads, fixed = panels - dynamic;
    use(thread.begin(fixed), thread.end(fixed));
    for (int64_t i; (i = thread.team.next(2 * threads)) < 2 * threads;)
      if (const int64_t from = fixed + dynamic * i / (2 * threads), end = fixed + dynamic * (i + 1) / (2 * threads);
          from < end)
        use(from, end);
  }

  // Calls use(row, head) for all. All rows of a head whose keys are in one tile belong to one thread, since they share
  // cache lines.
  template <class Use>
  void for_key_tiles(int64_t heads, Use use) {
    const int64_t before = rows.first_column % key_tile, tiles = (before + rows.count + key_tile - 1) / key_tile;
    for (int64_t i = thread.number; i < heads * tiles; i += thread.team.threads) {
      const int64_t begin = i / heads * key_tile - before;
      const int64_t end = std::min(begin + key_tile, rows.count);
      for (int64_t row = std::max<int64_t>(begin, 0); row < end; row++) use(row, i % heads);
    }
    thread.barrier();
  }

  void embed() {
    for_each(rows.count, [&](int64_t row) {
      float* to = rows.stream + row * m.width;
      if (m.embedding) std::copy_n(m.embedding + rows.tokens[row] * m.width, m.width, to);
      else unpack_row(*m.embedding_weight, rows.tokens[row], m.width, to);
      if (m.embedding_scale != 1) multiply_by(m.embedding_scale, to, m.width);
      if (rows.features) add_feature(row, to);
    });
    if (m.fc) multiply(*m.fc, b.fc_inputs.get(), rows.stream, m.width, false);
  }

  // Draft heads: concatenates the embedding, which is in the stream, and the feature, as inputs of the layer or of fc.
  void add_feature(int64_t row, float* stream) {
    const float* feature = rows.features + row * m.width;
    float* to = m.fc ? &b.fc_inputs[row * m.fc->in] : &b.normed[row * m.layers->qkv.in];
    rms_norm(stream, m.embedding_norm, m.width, m.eps, to);
    rms_norm(feature, m.feature_norm, m.width, m.eps, to + m.width);
    std::copy_n(m.normed_residual ? to + m.width : feature, m.width, stream);
  }

  void copy_stream(int64_t index) {
    float* to = rows.watched ? rows.watched[index] : nullptr;
    if (!to) return;
    for_each(rows.count, [&](int64_t row) { std::copy_n(rows.stream + row * m.width, m.width, to + row * m.width); });
  }

  void compute_logits() {
    const int64_t from = rows.first_hidden, count = rows.count - rows.first_logits;
    for_each(rows.count - from, [&](int64_t i) {
      rms_norm(rows.stream + (from + i) * m.width, m.norm, m.width, m.eps, rows.hidden + i * m.width);
    });
    const float* x = rows.hidden + (rows.first_logits - from) * m.width;
    if (m.head->in > m.width) {  // the weight needs padded rows
      for_each(count, [&](int64_t i) { std::copy_n(x + i * m.width, m.width, &b.normed[i * m.head->in]); });
      x = b.normed.get();
    }
    b.quantised.fill(*m.head, count, x, thread);
    for_panels(all_panels(*m.head), [&](int64_t first, int64_t end) {
      product(count, *m.head, {x, b.quantised}, first, end, {rows.logits, m.head->out, false});
    });
    thread.barrier();
    if (m.logit_scale != 1 || m.logit_cap)
      for_each(count, [&](int64_t i) {
        float* logits = rows.logits + i * m.head->out;
        if (m.logit_scale != 1) multiply_by(m.logit_scale, logits, m.head->out);
        if (m.logit_cap) soft_cap(m.logit_cap, logits, m.head->out);
      });
    if (!rows.summary) return;
    for_each(b.summariser.items(), [&](int64_t i) { b.summariser.read(i, rows.logits); });
    const Summary summary(rows.summary, count);
    for_each(count, [&](int64_t i) { b.summariser.join(i, summary, i); });
  }

  // Which columns each row sees, for each kind of mask.
  void find_visible() {
    const int64_t columns = rows.first_column + rows.count;
    for_each(rows.mask_kinds * rows.count, [&](int64_t i) {
      const int64_t row = i % rows.count, all = rows.first_column + row + 1;
      b.visible[i] = {nullptr, 0, all, all};
      if (!rows.masks) return;
      const float* mask = rows.masks[i / rows.count] + row * columns;
      int32_t* seen = &b.columns[i * columns];
      int64_t count = 0, in_order = 0;
      for (int64_t column = 0; column < columns; column++) {
        seen[count] = column;
        count += mask[column] == 0;
      }
      const int64_t first = seen[0] == 0 ? 0 : rows.positions[row] + 1 - count;
      while (in_order < count && seen[in_order] == first + in_order) in_order++;
      b.visible[i] = {seen, first, count, first + in_order};
    });
  }

  // Normalises the stream into the rows of a product with so many inputs.
  void norm(const float* weight, int64_t in) {
    for_each(rows.count, [&](int64_t row) {
      rms_norm(rows.stream + row * m.width, weight, m.width, m.eps, &b.normed[row * in]);
    });
  }

  void multiply(const Weight& w, const float* x, float* y, int64_t stride, bool accumulate) {
    b.quantised.fill(w, rows.count, x, thread);
    for_panels(all_panels(w), [&](int64_t first, int64_t end) {
      product(rows.count, w, {x, b.quantised}, first, end, {y, stride, accumulate});
    });
    thread.barrier();
  }

  void attention(const Layer& layer, int64_t index) {
    if (!rows.features || m.fc) norm(layer.norm, layer.qkv.in);
    multiply(layer.qkv, b.normed.get(), b.qkv.get(), (m.heads + 2 * m.kv_heads) * m.dim, false);
    rotate_and_cache(layer, index);
    for (int64_t row = 0; row < rows.count; row += b.attending)
      attend_rows(layer, index, row, std::min(row + b.attending, rows.count));
    add(layer.output, b.attended.get(), layer.after_norm);
  }

  // Adds the product of x and a weight to the stream, normalised and scaled if the model does that.
  void add(const Weight& w, const float* x, const float* after) {
    if (!after && m.residual_scale == 1) return multiply(w, x, rows.stream, m.width, true);
    multiply(w, x, b.sublayer.get(), m.width, false);
    for_each(rows.count, [&](int64_t row) {
      float *sublayer = &b.sublayer[row * m.width], *stream = rows.stream + row * m.width;
      if (after) rms_norm(sublayer, after, m.width, m.eps, sublayer);
      for (int64_t i = 0; i < m.width; i++) stream[i] += sublayer[i] * float(m.residual_scale);
    });
  }

  // Normalises and rotates (RoPE) queries and keys, and writes keys and values to the cache.
  void rotate_and_cache(const Layer& layer, int64_t index) {
    const int64_t dim = m.dim, half = m.rope_dim / 2, rotated = m.heads + m.kv_heads, all_heads = rotated + m.kv_heads;
    if (layer.joint_norm)
      for_each(2 * rows.count, [&](int64_t i) {  // the queries of a row, then its keys
        const int64_t first = i % 2 ? m.heads * dim : 0, size = (i % 2 ? m.kv_heads : m.heads) * dim;
        float* x = &b.qkv[i / 2 * all_heads * dim + first];
        rms_norm(x, layer.head_norms + first, size, m.eps, x);
      });
    for_key_tiles(all_heads, [&](int64_t row, int64_t head) {
      float* x = &b.qkv[(row * all_heads + head) * dim];
      if (head < rotated && layer.head_norms && !layer.joint_norm)
        rms_norm(x, layer.head_norms + head * dim, dim, m.eps, x);
      if (head < rotated && layer.rope) {
        const int64_t at = (rows.positions[row] * m.rope_tables + layer.rope_table) * m.rope_dim;
        const float *cos = rows.cos + at, *sin = rows.sin + at;
        for (int64_t d = 0; d < half; d++) {
          const float first = x[d], second = x[d + half];
          x[d] = first * cos[d] + second * sin[d];
          x[d + half] = second * cos[d + half] + first * sin[d + half];
        }
      }
      if (head >= m.heads) {
        const int64_t slot = 2 * m.kv_heads * index + head - m.heads;
        write_column(x, dim, head < rotated, rows.first_column + row, rows.cache + slot * rows.capacity * dim);
      }
    });
  }

  // One item is a chunk, for all these rows and the heads that share its keys, so that it stays in the cache for them.
  // Scheduling is dynamic, since fewer rows see the later chunks.
  void attend_rows(const Layer& layer, int64_t index, int64_t begin, int64_t end) {
    const int64_t shared = m.heads / m.kv_heads, dim = m.dim, row_size = (m.heads + 2 * m.kv_heads) * dim;
    const float* cache = rows.cache + 2 * m.kv_heads * index * rows.capacity * dim;
    float* scratch = &b.scratch[thread.number * Buffers::scratch_size(m)];
    for (int64_t i; (i = thread.team.next(m.kv_heads * b.chunks)) < m.kv_heads * b.chunks;) {
      const int64_t head = i / b.chunks * shared, number = i % b.chunks;
      const float* keys = cache + i / b.chunks * rows.capacity * dim;
      for (int64_t row = begin; row < end; row += rows_at_once) {
        const int64_t at = ((row - begin) * m.heads + head) * b.chunks + number;
        const HeadGroup gqa{&b.qkv[row * row_size + head * dim], keys, keys + m.kv_heads * rows.capacity * dim,
                            std::min<int64_t>(rows_at_once, end - row), shared, dim, row_size,
                            float(m.score_scale), float(m.score_cap)};
        attend(gqa, &b.visible[layer.mask_kind * rows.count + row], number, scratch,
               {&b.partials[at], &b.sums[at * dim], m.heads * b.chunks, b.chunks});
      }
    }
    thread.barrier();
    for_each((end - begin) * m.heads, [&](int64_t i) {
      const int64_t row = begin + i / m.heads;
      const Visible& visible = b.visible[layer.mask_kind * rows.count + row];
      const int64_t first = visible.first / chunk, chunks = (visible.end() - 1) / chunk + 1 - first;
      const int64_t at = i * b.chunks + first;
      float* out = &b.attended[row * layer.output.in + i % m.heads * dim];
      combine(&b.partials[at], &b.sums[at * dim], chunks, dim, out);
    });
  }

  void mlp(const Layer& layer) {
    norm(layer.mlp_norm, layer.gate_up.in);
    multiply(layer.gate_up, b.normed.get(), b.gate_up.get(), 2 * m.mlp, false);
    const int64_t row_vectors = m.mlp / lanes;
    for_each(rows.count * row_vectors, [&](int64_t i) {
      const int64_t row = i / row_vectors, at = i % row_vectors * lanes;
      const float* gate = &b.gate_up[row * 2 * m.mlp + at];
      store(&b.gated[row * layer.down.in + at], activation_function(load(gate), m.gelu) * load(gate + m.mlp));
    });
    add(layer.down, b.gated.get(), layer.after_mlp_norm);
  }
};

}  // namespace

#pragma GCC visibility push(default)
// No exception may leave a function of C. Those that allocate memory return 0, or -1 where there is too little.
extern "C" {

// Sets the OpenMP functions that threads come from (``team.h``).
void native_threads(decltype(OpenMP::parallel) run, decltype(OpenMP::num_threads) threads) { openmp = {run, threads}; }

// y [count][out] = x [count][in] times the weight.
int64_t native_product(const Weight* weight, int64_t count, const float* x, float* y, int64_t threads) try {
  const int64_t panels = all_panels(*weight), outputs = all_outputs(*weight);
  QuantisedRows quantised;
  quantised.reserve(*weight, count);
  parallel(std::min(threads, panels), [&](Thread& thread) {
    quantised.fill(*weight, count, x, thread);
    product(count, *weight, {x, quantised}, thread.begin(panels), thread.end(panels), {y, outputs, false});
  });
  return 0;
} catch (const std::exception&) {
  return -1;
}

// Unpacks this part of a weight to float32 [out][in].
void native_unpack(const Weight* weight, float* out, int64_t threads) {
  const int64_t panels = own_panels(*weight);
  parallel(std::min(threads, panels), [&](Thread& thread) {
    for (int64_t i = thread.begin(panels); i < thread.end(panels); i++) unpack_panel(*weight, i, out);
  });
}

// Unpacks rows of a weight, such as those of an embedding, to float32 [count][in].
void native_rows(const Weight* weight, int64_t count, const int64_t* rows, float* out, int64_t threads) {
  parallel(std::min(threads, count), [&](Thread& thread) {
    for (int64_t i = thread.begin(count); i < thread.end(count); i++)
      unpack_row(*weight, rows[i], weight->in, out + i * weight->in);
  });
}

// Bytes of this part of a weight.
int64_t native_size(const Weight* weight) { return own_panels(*weight) * panel_bytes(*weight); }

// Repacks rows of a GGUF file into the panels of this part of a weight. `order` gives the file's row for each output;
// null: they are in order. If the types differ, the weight's is three_bits, to which the rows are requantised.
int64_t native_repack(
    const Weight* weight, int64_t file_type, const uint8_t* file, const int64_t* order, int64_t threads) try {
  const int64_t panels = own_panels(*weight), size = panel_bytes(*weight);
  const bool requantises = file_type != weight->type;
  const Weight unplaced{nullptr, nullptr, weight->in, panel, file_type, 0, nullptr};
  const int64_t repacked_bytes = requantises ? panel_bytes(unplaced) : 0;
  const int64_t rows_bytes = requantises ? panel * weight->in / group * layout_of(three_bits).file_bytes : 0;
  std::vector<uint8_t> room(threads * (repacked_bytes + rows_bytes));
  parallel(std::min(threads, panels), [&](Thread& thread) {
    Weight one = unplaced;
    uint8_t* repacked = room.data() + thread.number * (repacked_bytes + rows_bytes);
    uint8_t* rows = repacked + repacked_bytes;
    one.panels = repacked;
    dispatch_quantised(file_type, [&](auto type) {
      for (int64_t i = thread.begin(panels); i < thread.end(panels); i++) {
        uint8_t* to = (uint8_t*)weight->panels + i * size;
        repack_panel<type>(file, one.in, weight->out, order, i, requantises ? repacked : to);
        if (!requantises) continue;
        requantise_panel(one, 0, rows);
        repack_panel<three_bits>(rows, one.in, panel, nullptr, 0, to);
      }
    });
  });
  return 0;
} catch (const std::exception&) {
  return -1;
}

// Summaries of rows of logits [size], and token_probabilities [count]: those of the given tokens. Runs on one thread:
// while another program uses a core, waiting for a second thread takes longer.
int64_t native_summaries(const float* const* rows, int64_t count, int64_t size, const int64_t* tokens, void* place,
                         double* token_probabilities) try {
  const Summary summary(place, count);
  Summariser summariser(1, size);
  for (int64_t i = 0; i < count; i++) {
    for (int64_t item = 0; item < summariser.items(); item++) summariser.read(item, rows[i]);
    summariser.join(0, summary, i);
    const int64_t best = summary.ids[i * favourites];
    const double relative = best < 0 ? NAN : rows[i][tokens[i]] - rows[i][best];
    token_probabilities[i] = std::exp(relative) * summary.probs[i * favourites];
  }
  return 0;
} catch (const std::exception&) {
  return -1;
}

// Copies the keys and values of columns, in rising order, to `start` and on, to keep the accepted rows of a draft tree.
// cache [slots][heads][capacity][dim]: slots of keys, in tiles, and slots of values alternate.
int64_t native_move(float* cache, int64_t slots, int64_t heads, int64_t capacity, int64_t dim, const int64_t* columns,
                    int64_t count, int64_t start) try {
  std::vector<float> one(dim);
  for (int64_t i = 0; i < slots * heads; i++)
    for (int64_t n = 0; n < count; n++) {
      const bool keys = i / heads % 2 == 0;
      float* all = cache + i * capacity * dim;
      read_column(all, dim, keys, columns[n], one.data());
      write_column(one.data(), dim, keys, start + n, all);
    }
  return 0;
} catch (const std::exception&) {
  return -1;
}

// A forward pass, from token ids to logits.
int64_t native_forward(const Model* model, const Rows* rows, int64_t threads) try {
  Buffers buffers(*model, *rows, threads);
  parallel(threads, [&](Thread& thread) { ForwardPass(*model, *rows, buffers, thread).run(); });
  return 0;
} catch (const std::exception&) {
  return -1;
}

}
#pragma GCC visibility pop
