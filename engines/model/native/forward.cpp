// Products with quantised weights, and the layers of Llama-like models, in float32 on the CPU.
//
// What a row comes to does not depend on how many rows, threads or other branches there are: no sum is made in another
// order for them.

#include <cmath>
#include <memory>
#include <vector>

#include "attention.h"
#include "products.h"
#include "team.h"

namespace {

struct Layer {
  Weight qkv, output, gate_up, down;
  // Weights of norms, times the root of their length, or null where there is none: before attention and MLP, of queries
  // and keys, after attention and MLP.
  const float *norm, *mlp_norm, *head_norms, *after_norm, *after_mlp_norm;
  // joint: all heads of a row have one norm; kind: which of the masks; table: of rotations
  int64_t joint, rotated, kind, table;
};

struct Model {
  const Layer* layers;
  const Weight *head, *table;     // table: where rows of the embedding are looked up, or null
  const float *embedding, *norm;  // [vocabulary][width] in place of a table; of the norm as above
  int64_t count, width, mlp, heads, kv_heads, dim, turned, tables, gelu;  // turned: numbers of a head that are rotated
  double eps, score_scale, embedding_scale, residual_scale, logit_scale, score_cap, logit_cap;  // caps: or 0
  // Of a head of the EAGLE family, whose rows have features: the weight [width, 2 width] over embedding and feature, or
  // null: then the norms of the two, whose results the layer reads beside each other, and whether the stream begins with
  // the feature's.
  const Weight* entry;
  const float *embedding_norm, *feature_norm;
  int64_t normed_residual;
};

struct Rows {
  int64_t count, first;               // how many, and the column of the first
  const int64_t *tokens, *positions;  // [count]
  const float *cos, *sin;             // of all positions [positions][tables][turned]
  float* stream;                      // the residual stream [count][width]
  float *last, *logits;  // what the last ones leave: after the final norm [count - first_last][width]; and their logits
  int64_t first_last, first_logits;  // [count - first_logits][vocabulary]
  float* cache;  // [layers][2 kv heads][capacity][dim], keys first, these in tiles (``attention.h``)
  int64_t capacity;
  const float* const* masks;  // of each kind [count][first + count], 0 where a column is seen; or null: all before
  int64_t kinds;
  const uint8_t* skipped;  // of each sublayer (attention and MLP of each layer), or null
  const float* features;   // [count][width] of a head, or null
  float* const* watched;   // where the stream [count][width] goes: before the first sublayer, after each; or null
};

// An array that is written before it is read, and so begins with anything.
template <class Kind>
struct Unset : std::unique_ptr<Kind[]> {
  explicit Unset(int64_t size) : std::unique_ptr<Kind[]>(new Kind[size]) {}
};

// Rows that a product reads [rows][in]: the numbers of each are followed by zeros up to the inputs that the weight has.
struct Read : Unset<float> {
  Read(int64_t rows, int64_t in, int64_t numbers) : Unset(rows * in) {
    for (float* row = get(); numbers < in && rows--; row += in) std::fill(row + numbers, row + in, 0.0f);
  }
};

struct Buffers {
  int64_t pieces;
  Read pairs, normed, attended, gated;
  Unset<float> states, gate_up, given, weights, sums;
  RoundedRows rounded;
  Unset<Part> parts;
  Unset<int32_t> columns;  // [kinds][count][first + count]
  Unset<Seen> seen;        // [kinds][count]

  Buffers(const Model& m, const Rows& rows, int64_t threads)
      : pieces((rows.first + rows.count + piece - 1) / piece),
        pairs(m.entry ? rows.count : 0, m.entry ? m.entry->in : 0, 2 * m.width),
        normed(rows.count, m.layers->qkv.in, rows.features && !m.entry ? 2 * m.width : m.width),
        attended(rows.count, m.layers->output.in, m.heads * m.dim),
        gated(rows.count, m.layers->down.in, m.mlp),
        states(rows.count * (m.heads + 2 * m.kv_heads) * m.dim),
        gate_up(rows.count * 2 * m.mlp),
        given(rows.count * m.width),
        weights(threads * room(m)),
        sums(rows.count * m.heads * pieces * m.dim),
        parts(rows.count * m.heads * pieces),
        columns(rows.masks ? rows.kinds * rows.count * (rows.first + rows.count) : 0),
        seen(rows.kinds * rows.count) {
    for (int64_t i = 0; i < m.count; i++)
      for (const Weight* w : {&m.layers[i].qkv, &m.layers[i].output, &m.layers[i].gate_up, &m.layers[i].down})
        rounded.reserve(*w, rows.count);
    rounded.reserve(*m.head, rows.count);
    if (m.entry) rounded.reserve(*m.entry, rows.count);
  }

  // Floats that a thread needs for attention.
  static int64_t room(const Model& m) { return rows_at_once * (m.heads / m.kv_heads) * piece + tile * m.dim; }
};

// x [size] over its root mean square, times a weight that the root of `size` is in.
// Without a weight x as it is.
void normalise(const float* x, const float* weight, int64_t size, double eps, float* out) {
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

// The activation of the MLP: x / (1 + e^-x), or GELU by its approximation with tanh, which is x / (1 + e^-2y).
inline Floats activation(Floats x, bool gelu) {
  return x / (1 + exponential(gelu ? -1.5957691216f * (x + 0.044715f * x * x * x) : -x));
}

class Pass {
 public:
  Pass(const Model& model, const Rows& rows, Buffers& buffers, Member& member)
      : m(model), rows(rows), b(buffers), member(member) {}

  void run() {
    embed();
    look();
    show(0);
    for (int64_t i = 0; i < 2 * m.count; i++) {
      if (!rows.skipped || !rows.skipped[i]) i % 2 ? mlp(m.layers[i / 2]) : attention(m.layers[i / 2], i / 2);
      show(i + 1);
    }
    finish();
  }

 private:
  const Model& m;
  const Rows& rows;
  Buffers& b;
  Member& member;

  template <class Use>
  void each(int64_t items, Use use) {
    for (int64_t i = member.from(items); i < member.to(items); i++) use(i);
    member.sync();
  }

  // Calls use(from, end) for all blocks: most of them are shared out beforehand, the last ones go to whoever is free, as a
  // core may be slower than another for a while.
  template <class Use>
  void each_block(int64_t blocks, Use use) {
    const int64_t members = member.team.members, left = blocks / (8 * members) * members, shared = blocks - left;
    use(member.from(shared), member.to(shared));
    for (int64_t i; (i = member.team.next(2 * members)) < 2 * members;)
      if (const int64_t from = shared + left * i / (2 * members), end = shared + left * (i + 1) / (2 * members); from < end)
        use(from, end);
  }

  // Calls use(row, head) for all. One member takes all rows of a head whose keys lie in one tile: no two members write
  // to one line of the cache.
  template <class Use>
  void each_in_tiles(int64_t heads, Use use) {
    const int64_t before = rows.first % tile, tiles = (before + rows.count + tile - 1) / tile;
    for (int64_t i = member.number; i < heads * tiles; i += member.team.members) {
      const int64_t begin = i / heads * tile - before;
      const int64_t end = std::min(begin + tile, rows.count);
      for (int64_t row = std::max<int64_t>(begin, 0); row < end; row++) use(row, i % heads);
    }
    member.sync();
  }

  void embed() {
    each(rows.count, [&](int64_t row) {
      float* to = rows.stream + row * m.width;
      if (m.embedding) std::copy_n(m.embedding + rows.tokens[row] * m.width, m.width, to);
      else one_row(*m.table, rows.tokens[row], m.width, to);
      if (m.embedding_scale != 1) multiply_by(m.embedding_scale, to, m.width);
      if (rows.features) join_feature(row, to);
    });
    if (m.entry) multiply(*m.entry, b.pairs.get(), rows.stream, m.width, false);
  }

  // Of a head: what its layer or the weight before it reads of a row, whose embedding is in its stream.
  void join_feature(int64_t row, float* stream) {
    const float* feature = rows.features + row * m.width;
    float* to = m.entry ? &b.pairs[row * m.entry->in] : &b.normed[row * m.layers->qkv.in];
    normalise(stream, m.embedding_norm, m.width, m.eps, to);
    normalise(feature, m.feature_norm, m.width, m.eps, to + m.width);
    std::copy_n(m.normed_residual ? to + m.width : feature, m.width, stream);
  }

  void show(int64_t place) {
    float* to = rows.watched ? rows.watched[place] : nullptr;
    if (!to) return;
    each(rows.count, [&](int64_t row) { std::copy_n(rows.stream + row * m.width, m.width, to + row * m.width); });
  }

  void finish() {
    const int64_t from = rows.first_last, kept = rows.count - rows.first_logits;
    each(rows.count - from, [&](int64_t i) {
      normalise(rows.stream + (from + i) * m.width, m.norm, m.width, m.eps, rows.last + i * m.width);
    });
    const float* x = rows.last + (rows.first_logits - from) * m.width;
    if (m.head->in > m.width) {  // zeros after each row
      each(kept, [&](int64_t i) { std::copy_n(x + i * m.width, m.width, &b.normed[i * m.head->in]); });
      x = b.normed.get();
    }
    b.rounded.fill(*m.head, kept, x, member);
    each_block(blocks_of(*m.head), [&](int64_t first, int64_t end) {
      product(kept, *m.head, {x, b.rounded}, first, end, {rows.logits, m.head->out, false});
    });
    if (m.logit_scale == 1 && m.logit_cap == 0) return;
    member.sync();
    each(kept, [&](int64_t i) {
      float* logits = rows.logits + i * m.head->out;
      if (m.logit_scale != 1) multiply_by(m.logit_scale, logits, m.head->out);
      if (m.logit_cap) soft_cap(m.logit_cap, logits, m.head->out);
    });
  }

  // What each row sees in layers of each kind.
  void look() {
    const int64_t columns = rows.first + rows.count;
    each(rows.kinds * rows.count, [&](int64_t i) {
      const int64_t row = i % rows.count, all = rows.first + row + 1;
      b.seen[i] = {nullptr, 0, all, all};
      if (!rows.masks) return;
      const float* mask = rows.masks[i / rows.count] + row * columns;
      int32_t* found = &b.columns[i * columns];
      int64_t count = 0, plain = 0;
      for (int64_t column = 0; column < columns; column++) {
        found[count] = column;
        count += mask[column] == 0;
      }
      const int64_t lowest = found[0] == 0 ? 0 : rows.positions[row] + 1 - count;
      while (plain < count && found[plain] == lowest + plain) plain++;
      b.seen[i] = {found, lowest, count, lowest + plain};
    });
  }

  // Fills what a product with as many inputs reads.
  void norm(const float* weight, int64_t in) {
    each(rows.count, [&](int64_t row) {
      normalise(rows.stream + row * m.width, weight, m.width, m.eps, &b.normed[row * in]);
    });
  }

  void multiply(const Weight& w, const float* x, float* y, int64_t stride, bool added) {
    b.rounded.fill(w, rows.count, x, member);
    each_block(blocks_of(w), [&](int64_t first, int64_t end) {
      product(rows.count, w, {x, b.rounded}, first, end, {y, stride, added});
    });
    member.sync();
  }

  void attention(const Layer& layer, int64_t index) {
    if (!rows.features || m.entry) norm(layer.norm, layer.qkv.in);
    multiply(layer.qkv, b.normed.get(), b.states.get(), (m.heads + 2 * m.kv_heads) * m.dim, false);
    rotate(layer, index);
    attend_all(layer, index);
    each(rows.count * m.heads, [&](int64_t i) {
      const Seen& seen = b.seen[layer.kind * rows.count + i / m.heads];
      const int64_t first = seen.lowest / piece, pieces = (seen.end() - 1) / piece + 1 - first;
      const int64_t at = i * b.pieces + first;
      float* out = &b.attended[i / m.heads * layer.output.in + i % m.heads * m.dim];
      join(&b.parts[at], &b.sums[at * m.dim], pieces, m.dim, out);
    });
    add(layer.output, b.attended.get(), layer.after_norm);
  }

  // Adds the product of x with a weight to the stream, normalised and scaled where the model does that.
  void add(const Weight& w, const float* x, const float* after) {
    if (!after && m.residual_scale == 1) return multiply(w, x, rows.stream, m.width, true);
    multiply(w, x, b.given.get(), m.width, false);
    each(rows.count, [&](int64_t row) {
      float *given = &b.given[row * m.width], *stream = rows.stream + row * m.width;
      if (after) normalise(given, after, m.width, m.eps, given);
      for (int64_t i = 0; i < m.width; i++) stream[i] += given[i] * float(m.residual_scale);
    });
  }

  // Queries and keys by their positions; keys and values go to the cache.
  void rotate(const Layer& layer, int64_t index) {
    const int64_t dim = m.dim, half = m.turned / 2, turned = m.heads + m.kv_heads, of_row = turned + m.kv_heads;
    if (layer.joint)
      each(2 * rows.count, [&](int64_t i) {  // the queries of a row, its keys
        const int64_t first = i % 2 ? m.heads * dim : 0, size = (i % 2 ? m.kv_heads : m.heads) * dim;
        float* x = &b.states[i / 2 * of_row * dim + first];
        normalise(x, layer.head_norms + first, size, m.eps, x);
      });
    each_in_tiles(of_row, [&](int64_t row, int64_t head) {
      float* x = &b.states[(row * of_row + head) * dim];
      if (head < turned && layer.head_norms && !layer.joint)
        normalise(x, layer.head_norms + head * dim, dim, m.eps, x);
      if (head < turned && layer.rotated) {
        const int64_t place = (rows.positions[row] * m.tables + layer.table) * m.turned;
        const float *cos = rows.cos + place, *sin = rows.sin + place;
        for (int64_t d = 0; d < half; d++) {
          const float first = x[d], second = x[d + half];
          x[d] = first * cos[d] + second * sin[d];
          x[d + half] = second * cos[d + half] + first * sin[d + half];
        }
      }
      if (head >= m.heads) {
        const int64_t slot = 2 * m.kv_heads * index + head - m.heads;
        place_column(x, dim, head < turned, rows.first + row, rows.cache + slot * rows.capacity * dim);
      }
    });
  }

  // A piece for all rows and the heads that share its keys, to whoever is free: it stays in the cache for them. Later
  // pieces are seen by fewer rows.
  void attend_all(const Layer& layer, int64_t index) {
    const int64_t shared = m.heads / m.kv_heads, dim = m.dim, row_size = (m.heads + 2 * m.kv_heads) * dim;
    const float* cache = rows.cache + 2 * m.kv_heads * index * rows.capacity * dim;
    float* weights = &b.weights[member.number * Buffers::room(m)];
    for (int64_t i; (i = member.team.next(m.kv_heads * b.pieces)) < m.kv_heads * b.pieces;) {
      const int64_t head = i / b.pieces * shared, number = i % b.pieces;
      const float* keys = cache + i / b.pieces * rows.capacity * dim;
      for (int64_t row = 0; row < rows.count; row += rows_at_once) {
        const int64_t place = (row * m.heads + head) * b.pieces + number;
        const Shared some{&b.states[row * row_size + head * dim], keys, keys + m.kv_heads * rows.capacity * dim,
                          std::min<int64_t>(rows_at_once, rows.count - row), shared, dim, row_size,
                          float(m.score_scale), float(m.score_cap)};
        attend(some, &b.seen[layer.kind * rows.count + row], number, weights,
               {&b.parts[place], &b.sums[place * dim], m.heads * b.pieces, b.pieces});
      }
    }
    member.sync();
  }

  void mlp(const Layer& layer) {
    norm(layer.mlp_norm, layer.gate_up.in);
    multiply(layer.gate_up, b.normed.get(), b.gate_up.get(), 2 * m.mlp, false);
    const int64_t of_row = m.mlp / lanes;
    each(rows.count * of_row, [&](int64_t i) {
      const int64_t row = i / of_row, at = i % of_row * lanes;
      const float* gate = &b.gate_up[row * 2 * m.mlp + at];
      store(&b.gated[row * layer.down.in + at], activation(load(gate), m.gelu) * load(gate + m.mlp));
    });
    add(layer.down, b.gated.get(), layer.after_mlp_norm);
  }
};

// Of a row [size] the `most` largest numbers, of equal ones the first, above minus infinity: which, or -1, and their
// values. Returns the sum of e^(number - the largest) of all, in one order.
double likeliest(const float* row, int64_t size, int64_t most, int64_t* which, float* values) {
  constexpr int64_t some = 8 * lanes;
  std::fill(which, which + most, -1);
  std::fill(values, values + most, -INFINITY);
  const auto look = [&](int64_t number) {
    const float value = row[number];
    if (!(value > values[most - 1])) return;
    int64_t at = most - 1;
    for (; at > 0 && value > values[at - 1]; at--) values[at] = values[at - 1], which[at] = which[at - 1];
    values[at] = value, which[at] = number;
  };
  Floats sums[4] = {};
  int64_t i = 0;
  for (; i + some <= size; i += some) {
    Floats high = load(row + i);
    for (int64_t k = lanes; k < some; k += lanes) {
      const Floats other = load(row + i + k);
      high = chosen(other > high, other, high);
    }
    if (largest(high) > values[most - 1]) {
      const float before = values[0];
      for (int64_t k = 0; k < some; k++) look(i + k);
      if (values[0] > before)  // the sums are relative to the largest so far
        for (Floats& part : sums) part *= std::exp(before - values[0]);
    }
    if (which[0] < 0) continue;
    for (int64_t k = 0; k < 8; k++) sums[k % 4] += exponential(load(row + i + k * lanes) - values[0]);
  }
  const float before = values[0];
  const int64_t rest = i;
  for (; i < size; i++) look(i);
  double total = sum(sums[0] + sums[1] + (sums[2] + sums[3])) * std::exp(before - values[0]);
  for (i = rest; i < size; i++) total += std::exp(row[i] - values[0]);
  return total;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Where threads come from (``team.h``).
void native_threads(decltype(Threads::parallel) parallel, decltype(Threads::count) count) { lent = {parallel, count}; }

// y [count][out] of x [count][in].
void native_product(const Weight* weight, int64_t count, const float* x, float* y, int64_t threads) {
  const int64_t blocks = blocks_of(*weight), outputs = outputs_of(*weight);
  RoundedRows rounded;
  rounded.reserve(*weight, count);
  together(std::min(threads, blocks), [&](Member& member) {
    rounded.fill(*weight, count, x, member);
    product(count, *weight, {x, rounded}, member.from(blocks), member.to(blocks), {y, outputs, false});
  });
}

// The part of a weight as float32 [out][in].
void native_unpack(const Weight* weight, float* out, int64_t threads) {
  const int64_t blocks = own_blocks(*weight);
  together(std::min(threads, blocks), [&](Member& member) {
    for (int64_t i = member.from(blocks); i < member.to(blocks); i++) unpack(*weight, i, out);
  });
}

// Rows of the weight by number as float32 [count][in].
void native_rows(const Weight* weight, int64_t count, const int64_t* numbers, float* out, int64_t threads) {
  together(std::min(threads, count), [&](Member& member) {
    for (int64_t i = member.from(count); i < member.to(count); i++)
      one_row(*weight, numbers[i], weight->in, out + i * weight->in);
  });
}

// Bytes of a part of a weight.
int64_t native_size(const Weight* weight) { return own_blocks(*weight) * block_size(*weight); }

// Fills the blocks of a part of a weight from the rows of a GGUF file that stores them in another way: `order` says
// which row is that of each output, or is null. Where the weight is of another kind, three_bits, the rows are
// narrowed to it (``narrow_block``).
void native_reorder(
    const Weight* weight, int64_t stored, const uint8_t* in_file, const int64_t* order, int64_t threads) {
  const int64_t blocks = own_blocks(*weight), size = block_size(*weight);
  const bool narrows = stored != weight->stored;
  together(std::min(threads, blocks), [&](Member& member) {
    Weight one{nullptr, nullptr, weight->in, block, stored, 0, nullptr};
    std::vector<uint8_t> whole(narrows ? block_size(one) : 0);
    std::vector<uint8_t> rows(narrows ? block * one.in / group * form(three_bits).file_size : 0);
    one.blocks = whole.data();
    by_whole_kind(stored, [&](auto kind) {
      for (int64_t i = member.from(blocks); i < member.to(blocks); i++) {
        uint8_t* to = (uint8_t*)weight->blocks + i * size;
        reorder_block<kind>(in_file, one.in, weight->out, order, i, narrows ? whole.data() : to);
        if (!narrows) continue;
        narrow_block(one, 0, rows.data());
        reorder_block<three_bits>(rows.data(), one.in, block, nullptr, 0, to);
      }
    });
  });
}

// What `count` rows of logits [size] say. which [count][most]: of the largest numbers, of equal ones the first, and -1
// after those above minus infinity; shares [count][most]: the probabilities of these; chance [count]: that of the token
// `asked` for; lead [count]: of the largest number over the second. On one thread: where another program uses a core,
// waiting for a second one takes longer.
void native_summaries(const float* const* rows, int64_t count, int64_t size, const int64_t* asked, int64_t most,
                      int64_t* which, double* shares, double* chance, float* lead) {
  std::vector<float> values(most);
  for (int64_t i = 0; i < count; i++) {
    const float* row = rows[i];
    const double total = likeliest(row, size, most, which + i * most, values.data());
    const auto share = [&](float value) { return std::exp(double(value - values[0])) / total; };
    for (int64_t k = 0; k < most; k++) shares[i * most + k] = share(values[k]);
    chance[i] = share(row[asked[i]]);
    lead[i] = size > 1 ? values[0] - values[1] : 0;
  }
}

// Copies the keys and values of columns, in rising order, to `start` and on. cache [slots][heads][capacity][dim]: keys,
// in tiles, and values in turn.
void native_move(float* cache, int64_t slots, int64_t heads, int64_t capacity, int64_t dim, const int64_t* columns,
                 int64_t count, int64_t start) {
  std::vector<float> one(dim);
  for (int64_t i = 0; i < slots * heads; i++)
    for (int64_t n = 0; n < count; n++) {
      const bool keys = i / heads % 2 == 0;
      float* all = cache + i * capacity * dim;
      take_column(all, dim, keys, columns[n], one.data());
      place_column(one.data(), dim, keys, start + n, all);
    }
}

// From token ids to logits.
void native_forward(const Model* model, const Rows* rows, int64_t threads) {
  Buffers buffers(*model, *rows, threads);
  together(threads, [&](Member& member) { Pass(*model, *rows, buffers, member).run(); });
}

}
#pragma GCC visibility pop
