// Lookups in a datastore of tokens with a suffix array over them, and the trie of what they find; and what followed the
// nearest of some keys.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "vectors.h"

#define PUBLIC extern "C" __attribute__((visibility("default")))

namespace {

constexpr int32_t END = -1;

// Tokens are big-endian and of 2 or 4 bytes; one that is no token of the vocabulary separates documents.
struct Text {
    const uint8_t* bytes;
    const int32_t* order;  // the suffixes, in order
    int64_t width, tokens, suffixes, vocabulary;

    uint32_t at(int64_t place) const {
        const uint8_t* b = bytes + place * width;
        return width == 2 ? uint32_t(b[0]) << 8 | b[1] : uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | b[2] << 8 | b[3];
    }

    // Whether the suffix at a place is below a key; ``after``: below the key with a separator after it.
    bool below(int64_t place, const int64_t* key, int64_t size, bool after) const {
        for (int64_t i = 0; i < size; i++) {
            if (place + i >= tokens) return true;
            uint32_t token = at(place + i);
            if (token != key[i]) return token < key[i];
        }
        return after && (place + size >= tokens || at(place + size) < separator());
    }

    uint32_t separator() const { return width == 2 ? 0xFFFF : 0xFFFFFFFF; }

    // The first suffix from ``low`` on that is not below a key.
    int64_t first(const int64_t* key, int64_t size, bool after, int64_t low) const {
        int64_t high = suffixes;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (below(place(middle), key, size, after)) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    // The tokens from a place on, END from the end of its document on.
    void after(int64_t place, int64_t length, int32_t* out, int64_t apart) const {
        bool ended = false;
        for (int64_t i = 0; i < length; i++) {
            const uint32_t token = ended ? 0 : at(std::clamp<int64_t>(place + i, 0, tokens - 1));
            ended = ended || token >= vocabulary;
            out[i * apart] = ended ? END : int32_t(token);
        }
    }

    // A damaged array names no place outside of the text.
    int64_t place(int64_t rank) const { return std::clamp<int64_t>(order[rank], 0, tokens - 1); }

    bool goes_on(int64_t rank, const int64_t* key, int64_t size) const {
        if (rank == suffixes) return false;
        int64_t begin = place(rank);
        if (begin + size > tokens) return false;
        for (int64_t i = 0; i < size; i++)
            if (at(begin + i) != key[i]) return false;
        return begin + size >= tokens || at(begin + size) != separator();
    }
};

struct Node {
    double count;
    int64_t depth, begin, end;

    // The heavier one first, then the shallower, then by rows.
    bool operator<(const Node& other) const {
        if (count != other.count) return count < other.count;
        return depth != other.depth ? depth > other.depth : begin > other.begin;
    }
};

struct Rows {
    const int32_t* tokens;
    const double* weights;  // of each row, or null
    int64_t rows, width, row_step, step;

    int32_t at(int64_t row, int64_t column) const { return tokens[row * row_step + column * step]; }

    // The children of a node: runs of rows that go on alike.
    template <typename Found>
    void children(int64_t begin, int64_t end, int64_t depth, const double* before, Found found) const {
        for (int64_t row = begin; depth < width && row < end;) {
            int32_t token = at(row, depth);
            int64_t next = row + 1, stride = 1;  // equal tokens are a run: strides double, then halve
            auto same = [&] { return next + stride <= end && at(next + stride - 1, depth) == token; };
            for (; same(); stride *= 2) next += stride;
            for (; stride; stride /= 2)
                if (same()) next += stride;
            if (token != END) found(Node{before ? before[next] - before[row] : double(next - row), depth, row, next});
            row = next;
        }
    }

    int64_t heaviest(int64_t begin, int64_t end) const {
        return weights ? std::max_element(weights + begin, weights + end) - weights : begin;
    }
};

// Keys of float16 [keys][width], with the place of the token after each.
struct Keys {
    const uint8_t* numbers;
    const uint32_t* places;
    int64_t width;

    float times(int64_t key, const float* query) const {
        const uint8_t* own = numbers + 2 * width * key;
        Floats sums = {};
        int64_t i = 0;
        for (; i + lanes <= width; i += lanes) sums += halves(own + 2 * i) * load(query + i);
        float found = sum(sums);
        for (_Float16 half; i < width; i++) std::memcpy(&half, own + 2 * i, 2), found += float(half) * query[i];
        return found;
    }
};

// Nodes in depth-first order, of siblings the heavier first; equal ones by rows.
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

// The longest suffix of a query, of ``least`` tokens at the least, that occurs with a token after it: its length, where
// its occurrences begin in the order, and where they end.
PUBLIC int64_t lookup_longest(const Text* text, const int64_t* query, int64_t size, int64_t least, int64_t* found) {
    for (int64_t i = size - 1; i >= 0; i--)
        if (query[i] < 0 || query[i] >= text->vocabulary) {
            query += i + 1, size -= i + 1;
            break;
        }
    int64_t low = std::max<int64_t>(least, 1), high = size;
    found[0] = 0;
    while (low <= high) {
        int64_t length = (low + high + 1) / 2, first = text->first(query + size - length, length, false, 0);
        if (text->goes_on(first, query + size - length, length)) {
            found[0] = length, found[1] = first, low = length + 1;
        } else {
            high = length - 1;
        }
    }
    if (!found[0]) return 0;
    found[2] = text->first(query + size - found[0], found[0], true, found[1]);
    return found[0];
}

// What follows some of the occurrences of a match, column by column: ``tokens`` [length, rows], ``positions`` [rows].
PUBLIC void lookup_rows(const Text* text, int64_t begin, int64_t count, int64_t matched, int64_t rows, int64_t length,
                        int32_t* tokens, int64_t* positions) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t rank = begin + (rows == count ? row : (2 * row + 1) * count / (2 * rows));
        positions[row] = text->order[rank] + matched;
        text->after(positions[row], length, tokens + row, rows);
    }
}

// What follows the nearest of some keys that lead to a token (-1: any), the nearest first: ``tokens`` [rows, length] of
// at most so many rows. ``distinct``: of those that go on alike the nearest, and in ``counts`` how many there are.
// ``matching``: how many keys lead there; where these are not ``enough``, nothing is read. Returns the number of rows.
PUBLIC int64_t lookup_near(const Text* text, const Keys* keys, const float* query, const int64_t* some, int64_t number,
                           int64_t emitted, int64_t enough, int64_t rows, int64_t length, int64_t distinct,
                           int32_t* tokens, float* scores, int64_t* positions, int64_t* found, int32_t* counts,
                           int64_t* matching) {
    struct Near {
        float score;
        int64_t key, place;
        bool operator<(const Near& other) const {
            return score != other.score ? score > other.score : key < other.key;
        }
    };
    std::vector<Near> near;
    const int64_t last = text->tokens - 1;  // a separator; bounds hold in damaged arrays too
    for (int64_t i = 0; i < number; i++) {
        int64_t place = std::min<int64_t>(keys->places[some[i]], last);
        if (emitted >= 0 && text->at(place) != emitted) continue;
        if (emitted >= 0) place = std::min(place + 1, last);
        if (text->at(place) < text->vocabulary) near.push_back({0, some[i], place});
    }
    *matching = near.size();
    if (*matching < enough) return 0;
    for (Near& one : near) one.score = keys->times(one.key, query);
    std::sort(near.begin(), near.end());
    std::vector<int32_t> row(length);
    int64_t count = 0;
    for (const Near& one : near) {
        if (!distinct && count == rows) break;
        text->after(one.place, length, row.data(), 1);
        int64_t same = distinct ? 0 : count;
        while (same < count && !std::equal(row.begin(), row.end(), tokens + same * length)) same++;
        if (same < count) {
            counts[same]++;
        } else if (count < rows) {
            std::copy(row.begin(), row.end(), tokens + count * length);
            scores[count] = one.score, positions[count] = one.place, found[count] = one.key, counts[count] = 1;
            count++;
        }
    }
    return count;
}

// The heaviest nodes of the trie of sorted rows, at most ``most``, each with its depth's share of the weight, ``least``
// [width] (the heaviest of all in any case). Returns how many.
PUBLIC int64_t lookup_trie(const Rows* rows, int64_t most, const double* least, int32_t* tokens, int32_t* parents,
                           double* counts, int32_t* from, double* total) {
    std::vector<double> sums;
    if (rows->weights) {
        sums.assign(rows->rows + 1, 0.0);
        std::partial_sum(rows->weights, rows->weights + rows->rows, sums.begin() + 1);
    }
    const double* before = rows->weights ? sums.data() : nullptr;
    *total = before ? sums.back() : rows->rows;
    std::vector<Node> nodes;
    std::vector<int32_t> parent_of;
    double largest = 0;
    rows->children(0, rows->rows, 0, before, [&](Node node) { largest = std::max(largest, node.count); });
    struct Open {
        Node node;
        int32_t parent;
        bool operator<(const Open& other) const { return node < other.node; }
    };
    std::vector<Open> heap;
    auto push = [&](int64_t begin, int64_t end, int64_t depth, int32_t parent) {
        if (depth == rows->width) return;
        double limit = depth ? least[depth] * *total : std::min(least[0] * *total, largest);
        rows->children(begin, end, depth, before, [&](Node node) {
            if (node.count < limit || !node.count) return;
            heap.push_back({node, parent});
            std::push_heap(heap.begin(), heap.end());
        });
    };
    push(0, rows->rows, 0, -1);
    while (!heap.empty() && int64_t(nodes.size()) < most) {
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
        from[i] = rows->heaviest(node.begin, node.end);
    }
    for (int64_t i = int64_t(order.size()) - 1; i > 0; i--)
        if (parents[i] == i - 1) from[i - 1] = from[i];  // its first child
    return order.size();
}
