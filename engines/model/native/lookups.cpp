// Lookups in datastores: the matches of a context in a suffix array over tokens, the trie of their continuations, and
// the continuations of the nearest keys.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <numeric>
#include <vector>

#include "vectors.h"

#define PUBLIC extern "C" __attribute__((visibility("default")))

namespace {

constexpr int32_t END = -1;

// Tokens are big-endian, of 2 or 4 bytes. Values beyond the vocabulary separate documents.
struct Text {
    const uint8_t* bytes;
    const int32_t* order;  // the suffix array
    int64_t width, tokens, suffixes, vocabulary;

    uint32_t at(int64_t position) const {
        const uint8_t* b = bytes + position * width;
        return width == 2 ? uint32_t(b[0]) << 8 | b[1] : uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | b[2] << 8 | b[3];
    }

    // Whether the suffix at a position is less than a key; ``after``: less than the key followed by a separator.
    bool below(int64_t position, const int64_t* key, int64_t size, bool after) const {
        for (int64_t i = 0; i < size; i++) {
            if (position + i >= tokens) return true;
            uint32_t token = at(position + i);
            if (token != key[i]) return token < key[i];
        }
        return after && (position + size >= tokens || at(position + size) < separator());
    }

    uint32_t separator() const { return width == 2 ? 0xFFFF : 0xFFFFFFFF; }

    // Binary search: the rank of the first suffix, from ``low`` on, that is not less than a key.
    int64_t first(const int64_t* key, int64_t size, bool after, int64_t low) const {
        int64_t high = suffixes;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (below(start(middle), key, size, after)) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    // The tokens from a position on; END after the end of its document.
    void after(int64_t position, int64_t length, int32_t* out, int64_t stride) const {
        bool ended = false;
        for (int64_t i = 0; i < length; i++) {
            const uint32_t token = ended ? 0 : at(std::clamp<int64_t>(position + i, 0, tokens - 1));
            ended = ended || token >= vocabulary;
            out[i * stride] = ended ? END : int32_t(token);
        }
    }

    // Where the suffix of this rank begins. Clamped, so that a damaged array cannot lead outside the text.
    int64_t start(int64_t rank) const { return std::clamp<int64_t>(order[rank], 0, tokens - 1); }

    bool continues(int64_t rank, const int64_t* key, int64_t size) const {
        if (rank == suffixes) return false;
        int64_t begin = start(rank);
        if (begin + size > tokens) return false;
        for (int64_t i = 0; i < size; i++)
            if (at(begin + i) != key[i]) return false;
        return begin + size >= tokens || at(begin + size) != separator();
    }
};

struct Node {
    double count;
    int64_t depth, begin, end;

    // For a heap: the heaviest node first, then the shallowest, then the one of the first rows.
    bool operator<(const Node& other) const {
        if (count != other.count) return count < other.count;
        return depth != other.depth ? depth > other.depth : begin > other.begin;
    }
};

struct Rows {
    const int32_t* tokens;
    const double* weights;  // of the rows, or null: each counts 1
    int64_t rows, width, row_step, step;

    int32_t at(int64_t row, int64_t column) const { return tokens[row * row_step + column * step]; }

    // The children of a node: runs of rows with the same next token.
    template <typename Found>
    void children(int64_t begin, int64_t end, int64_t depth, const double* cumulative, Found found) const {
        for (int64_t row = begin; depth < width && row < end;) {
            int32_t token = at(row, depth);
            int64_t next = row + 1, stride = 1;  // galloping search for the end of a run
            auto same = [&] { return next + stride <= end && at(next + stride - 1, depth) == token; };
            for (; same(); stride *= 2) next += stride;
            for (; stride; stride /= 2)
                if (same()) next += stride;
            if (token != END)
                found(Node{cumulative ? cumulative[next] - cumulative[row] : double(next - row), depth, row, next});
            row = next;
        }
    }

    int64_t heaviest(int64_t begin, int64_t end) const {
        return weights ? std::max_element(weights + begin, weights + end) - weights : begin;
    }
};

// Keys float16 [keys][width], with the position of the token after each.
struct Keys {
    const uint8_t* values;
    const uint32_t* positions;
    int64_t width;

    float dot(int64_t key, const float* query) const {
        const uint8_t* key_values = values + 2 * width * key;
        Floats sums = {};
        int64_t i = 0;
        for (; i + lanes <= width; i += lanes) sums += load_float16(key_values + 2 * i) * load(query + i);
        float total = sum(sums);
        for (_Float16 half; i < width; i++) std::memcpy(&half, key_values + 2 * i, 2), total += float(half) * query[i];
        return total;
    }
};

// Nodes in depth-first order; of siblings the heavier one first, and among equals the one of the first rows.
std::vector<int32_t> ordered(const std::vector<Node>& nodes, const std::vector<int32_t>& parents) {
    std::vector<std::vector<int32_t>> below(nodes.size() + 1);
    for (size_t node = 0; node < nodes.size(); node++) below[parents[node] + 1].push_back(node);
    std::vector<int32_t> out, open{-1};
    while (!open.empty()) {
        int32_t node = open.back();
        open.pop_back();
        if (node >= 0) out.push_back(node);
        auto& children = below[node + 1];
        std::sort(children.begin(), children.end(), [&](int32_t a, int32_t b) {
            return nodes[a].count != nodes[b].count ? nodes[a].count < nodes[b].count : nodes[a].begin > nodes[b].begin;
        });
        open.insert(open.end(), children.begin(), children.end());
    }
    return out;
}

}  // namespace

// The longest suffix of a query, of at least ``min_length`` tokens, that occurs in the text with a token after it.
// ``found``: its length, the rank of its first occurrence, and the rank after its last one.
PUBLIC int64_t lookup_longest(const Text* text, const int64_t* query, int64_t size, int64_t min_length,
                              int64_t* found) {
    for (int64_t i = size - 1; i >= 0; i--)
        if (query[i] < 0 || query[i] >= text->vocabulary) {
            query += i + 1, size -= i + 1;
            break;
        }
    int64_t low = std::max<int64_t>(min_length, 1), high = size;
    found[0] = 0;
    while (low <= high) {
        int64_t length = (low + high + 1) / 2, first = text->first(query + size - length, length, false, 0);
        if (text->continues(first, query + size - length, length)) {
            found[0] = length, found[1] = first, low = length + 1;
        } else {
            high = length - 1;
        }
    }
    if (!found[0]) return 0;
    found[2] = text->first(query + size - found[0], found[0], true, found[1]);
    return found[0];
}

// The continuations of evenly spaced occurrences of a match: ``tokens`` [length, rows], ``positions`` [rows].
PUBLIC void lookup_rows(const Text* text, int64_t begin, int64_t count, int64_t matched, int64_t rows, int64_t length,
                        int32_t* tokens, int64_t* positions) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t rank = begin + (rows == count ? row : (2 * row + 1) * count / (2 * rows));
        positions[row] = text->order[rank] + matched;
        text->after(positions[row], length, tokens + row, rows);
    }
}

// The continuations of the nearest candidate keys that are followed by the token ``emitted`` (-1: any), the nearest
// first: ``tokens`` [rows, length]. ``distinct``: of equal continuations only the nearest, their number in ``counts``.
// ``matching``: how many keys are followed by it; if fewer than ``enough``, nothing is searched. Returns how many rows;
// -1: there is too little memory.
PUBLIC int64_t lookup_near(const Text* text, const Keys* keys, const float* query, const int64_t* candidates,
                           int64_t size, int64_t emitted, int64_t enough, int64_t rows, int64_t length,
                           int64_t distinct, int32_t* tokens, float* scores, int64_t* positions, int64_t* found_keys,
                           int32_t* counts, int64_t* matching) try {
    struct Neighbour {
        float score;
        int64_t key, position;
        bool operator<(const Neighbour& other) const {
            return score != other.score ? score > other.score : key < other.key;
        }
    };
    std::vector<Neighbour> neighbours;
    const int64_t last = text->tokens - 1;  // a separator; positions in damaged arrays are clamped to it
    for (int64_t i = 0; i < size; i++) {
        int64_t position = std::min<int64_t>(keys->positions[candidates[i]], last);
        if (emitted >= 0 && text->at(position) != emitted) continue;
        if (emitted >= 0) position = std::min(position + 1, last);
        if (text->at(position) < text->vocabulary) neighbours.push_back({0, candidates[i], position});
    }
    *matching = neighbours.size();
    if (*matching < enough) return 0;
    for (Neighbour& neighbour : neighbours) neighbour.score = keys->dot(neighbour.key, query);
    std::sort(neighbours.begin(), neighbours.end());
    std::vector<int32_t> row(length);
    int64_t count = 0;
    for (const Neighbour& neighbour : neighbours) {
        if (!distinct && count == rows) break;
        text->after(neighbour.position, length, row.data(), 1);
        int64_t equal = distinct ? 0 : count;
        while (equal < count && !std::equal(row.begin(), row.end(), tokens + equal * length)) equal++;
        if (equal < count) {
            counts[equal]++;
        } else if (count < rows) {
            std::copy(row.begin(), row.end(), tokens + count * length);
            scores[count] = neighbour.score, positions[count] = neighbour.position;
            found_keys[count] = neighbour.key, counts[count] = 1;
            count++;
        }
    }
    return count;
} catch (const std::exception&) {
    return -1;
}

// The heaviest nodes of the trie of sorted rows, at most ``max_nodes``. Each has at least the share of the weight that
// its depth requires, ``min_share`` [width], but the heaviest node is always included. Returns how many; -1: there is
// too little memory.
PUBLIC int64_t lookup_trie(const Rows* rows, int64_t max_nodes, const double* min_share, int32_t* tokens,
                           int32_t* parents, double* counts, int32_t* best_rows, double* total) try {
    std::vector<double> sums;
    if (rows->weights) {
        sums.assign(rows->rows + 1, 0.0);
        std::partial_sum(rows->weights, rows->weights + rows->rows, sums.begin() + 1);
    }
    const double* cumulative = rows->weights ? sums.data() : nullptr;
    *total = cumulative ? sums.back() : rows->rows;
    std::vector<Node> nodes;
    std::vector<int32_t> parent_of;
    double largest = 0;
    rows->children(0, rows->rows, 0, cumulative, [&](Node node) { largest = std::max(largest, node.count); });
    struct Open {
        Node node;
        int32_t parent;
        bool operator<(const Open& other) const { return node < other.node; }
    };
    std::vector<Open> heap;
    auto push = [&](int64_t begin, int64_t end, int64_t depth, int32_t parent) {
        if (depth == rows->width) return;
        double limit = depth ? min_share[depth] * *total : std::min(min_share[0] * *total, largest);
        rows->children(begin, end, depth, cumulative, [&](Node node) {
            if (node.count < limit || !node.count) return;
            heap.push_back({node, parent});
            std::push_heap(heap.begin(), heap.end());
        });
    };
    push(0, rows->rows, 0, -1);
    while (!heap.empty() && int64_t(nodes.size()) < max_nodes) {
        std::pop_heap(heap.begin(), heap.end());
        Open best = heap.back();
        heap.pop_back();
        nodes.push_back(best.node), parent_of.push_back(best.parent);
        push(best.node.begin, best.node.end, best.node.depth + 1, nodes.size() - 1);
    }
    std::vector<int32_t> order = ordered(nodes, parent_of), index(nodes.size());
    for (size_t i = 0; i < order.size(); i++) index[order[i]] = i;
    for (size_t i = 0; i < order.size(); i++) {
        const Node& node = nodes[order[i]];
        int32_t parent = parent_of[order[i]];
        tokens[i] = rows->at(node.begin, node.depth);
        parents[i] = parent < 0 ? -1 : index[parent];
        counts[i] = node.count;
        best_rows[i] = rows->heaviest(node.begin, node.end);
    }
    for (int64_t i = int64_t(order.size()) - 1; i > 0; i--)
        if (parents[i] == i - 1) best_rows[i - 1] = best_rows[i];  // its first child
    return order.size();
} catch (const std::exception&) {
    return -1;
}
