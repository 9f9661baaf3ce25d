// Many disjoint boxes that come and go, each with a value: which meet a region, without looking at all of them.
//
// Owns: BoxTree. Must not know: what the values are. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "kmm/boxes/box.hpp"
#include "kmm/graph/host_reserve.hpp"

namespace kmm::graph {

using boxes::Box;

/// An R-tree (Guttman: R-trees, a dynamic index structure for spatial searching, 1984). A full node is cut in half
/// along the axis that leaves the least common volume; a sparse one stays until it is empty. Since nodes of boxes that
/// come in any order overlap more and more, the tree is built anew by halves whenever the number of boxes has doubled.
/// Boxes that are disjoint and not much longer than their neighbours are: amortised O(log n) for one that is put in,
/// O(log n) and what is found for a query. Memory comes from the reserve of the host in need.
template<typename Value> class BoxTree {
  public:
    struct Entry {
        Box box;
        Value value;
    };

    /// Axes from `rank` on are not looked at.
    explicit BoxTree(std::size_t rank) noexcept : rank_(rank) {}

    std::size_t size() const noexcept { return entries_.size() - free_entries_.size(); }
    /// Not empty, and disjoint from all that are there.
    void insert(const Box& box, Value value);
    /// Calls `f(Entry&)` for each that has an element in common with `region`, in no order. `f` may change values.
    template<typename F> void each_that_meets(const Box& region, F&& f) {
        if (root_ != none) each_below(root_, region, f);
    }
    template<typename F> void each_that_meets(const Box& region, F&& f) const {
        const_cast<BoxTree&>(*this).each_that_meets(region, [&f](const Entry& e) { f(e); });
    }
    /// Calls `f(const Entry&)` for each.
    template<typename F> void each(F&& f) const {
        if (root_ != none) each_of(root_, f);
    }
    /// Takes out what has an element in common with `region`: calls `f(Entry&&)` for each, in no order. `f` must not
    /// use the tree.
    template<typename F> void take(const Box& region, F&& f) {
        cut(region, [](const Entry&) { return false; }, f);
    }
    /// Takes the region out of every box that meets it. `trims(const Entry&)` is called for each: where it returns true
    /// and one box is left, the entry keeps its place, and is that box from then on; others are taken out: `f(Entry&&)`
    /// gets what they were. In no order; neither may use the tree.
    template<typename T, typename F> void cut(const Box& region, T&& trims, F&& f);

    /// How many boxes and bounds were compared with another box, for tests.
    std::uint64_t num_looked_at() const noexcept { return num_looked_at_; }

  private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint32_t fan = 8;
    static constexpr std::size_t least_built = 64;

    struct Node {
        Box bounds;
        bool is_leaf = true;
        std::uint32_t count = 0;
        std::array<std::uint32_t, fan + 1> items;  ///< entries of a leaf, else nodes; one more for an instant
    };

    const Box& box_of(const Node& node, std::uint32_t i) const noexcept {
        return node.is_leaf ? entries_[node.items[i]].box : nodes_[node.items[i]].bounds;
    }
    void extend(Box& bounds, const Box& by) const noexcept {
        for (std::size_t k = 0; k < rank_; ++k) {
            bounds.begin[k] = std::min(bounds.begin[k], by.begin[k]);
            bounds.end[k] = std::max(bounds.end[k], by.end[k]);
        }
    }
    Box joined(Box a, const Box& b) const noexcept {
        extend(a, b);
        return a;
    }
    double size_of(const Box& b) const noexcept {
        double size = 1;
        for (std::size_t k = 0; k < rank_; ++k) size *= static_cast<double>(b.end[k]) - static_cast<double>(b.begin[k]);
        return size;
    }
    bool looks_and_meets(const Box& a, const Box& b) const noexcept {
        ++num_looked_at_;
        return boxes::overlaps(a, b, rank_);
    }
    void tighten(Node& node) noexcept {
        node.bounds = box_of(node, 0);
        for (std::uint32_t i = 1; i < node.count; ++i) extend(node.bounds, box_of(node, i));
    }

    template<typename F> void each_below(std::uint32_t n, const Box& region, F& f) {
        for (std::uint32_t i = 0; i < nodes_[n].count; ++i) {
            if (!looks_and_meets(box_of(nodes_[n], i), region)) continue;
            if (nodes_[n].is_leaf)
                f(entries_[nodes_[n].items[i]]);
            else
                each_below(nodes_[n].items[i], region, f);
        }
    }
    template<typename F> void each_of(std::uint32_t n, F& f) const {
        for (std::uint32_t i = 0; i < nodes_[n].count; ++i) {
            if (nodes_[n].is_leaf)
                f(entries_[nodes_[n].items[i]]);
            else
                each_of(nodes_[n].items[i], f);
        }
    }
    template<typename T, typename F> void cut_below(std::uint32_t n, const Box& region, T& trims, F& f);
    /// Whether it could be done: one box is left of the entry.
    static bool trim(Entry& entry, const Box& region) {
        std::size_t pieces = 0;
        Box left;
        boxes::subtract(entry.box, region, [&](const Box& piece) { left = piece, ++pieces; });
        if (pieces == 1) entry.box = left;
        return pieces == 1;
    }
    std::uint32_t insert_below(std::uint32_t n, std::uint32_t entry);
    std::uint32_t child_for(const Node& node, const Box& box) const noexcept;
    std::uint32_t split(std::uint32_t n);
    void sort_along(Node& node, std::size_t axis) const;
    double common_size_of_halves(const Node& node) const noexcept;
    std::uint32_t new_node(bool is_leaf);
    void build_anew();
    std::uint32_t build(std::uint32_t* begin, std::uint32_t* end);
    void build_children(std::uint32_t parent, std::uint32_t* begin, std::uint32_t* end, std::size_t parts);
    std::size_t widest_axis(const std::uint32_t* begin, const std::uint32_t* end) const noexcept;
    double middle(const Box& b, std::size_t axis) const noexcept {
        return static_cast<double>(b.begin[axis]) + static_cast<double>(b.end[axis]);
    }

    std::size_t rank_;
    std::uint32_t root_ = none;
    Vector<Entry> entries_;
    Vector<std::uint32_t> free_entries_;
    Vector<Node> nodes_;
    Vector<std::uint32_t> free_nodes_;
    std::size_t built_of_ = least_built;  ///< boxes, when the tree was built last
    mutable std::uint64_t num_looked_at_ = 0;
};

template<typename Value> std::uint32_t BoxTree<Value>::new_node(bool is_leaf) {
    std::uint32_t n = static_cast<std::uint32_t>(nodes_.size());
    if (free_nodes_.empty()) {
        nodes_.emplace_back();
    } else {
        n = free_nodes_.back();
        free_nodes_.pop_back();
    }
    nodes_[n].is_leaf = is_leaf;
    nodes_[n].count = 0;
    return n;
}

template<typename Value> void BoxTree<Value>::insert(const Box& box, Value value) {
    std::uint32_t entry = static_cast<std::uint32_t>(entries_.size());
    if (free_entries_.empty()) {
        entries_.push_back({box, std::move(value)});
    } else {
        entry = free_entries_.back();
        free_entries_.pop_back();
        entries_[entry] = {box, std::move(value)};
    }
    if (root_ == none) root_ = new_node(true);
    if (const std::uint32_t beside = insert_below(root_, entry); beside != none) {
        const std::uint32_t top = new_node(false);
        Node& node = nodes_[top];
        node.items[0] = root_;
        node.items[1] = beside;
        node.count = 2;
        tighten(node);
        root_ = top;
    }
    if (size() >= 2 * built_of_) build_anew();
}

template<typename Value> void BoxTree<Value>::build_anew() {
    Vector<std::uint32_t> live(entries_.size(), 1);
    for (const std::uint32_t free : free_entries_) live[free] = 0;
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < live.size(); ++i)
        if (live[i] != 0) live[count++] = i;
    built_of_ = count;
    nodes_.clear();
    free_nodes_.clear();
    root_ = build(live.data(), live.data() + count);
}

/// A node over these entries, of which there is at least one.
template<typename Value> std::uint32_t BoxTree<Value>::build(std::uint32_t* begin, std::uint32_t* end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const std::uint32_t n = new_node(count <= fan);
    if (count <= fan) {
        std::copy(begin, end, nodes_[n].items.begin());
        nodes_[n].count = static_cast<std::uint32_t>(count);
    } else {
        build_children(n, begin, end, std::min<std::size_t>(fan, std::bit_ceil((count + fan - 1) / fan)));
    }
    tighten(nodes_[n]);
    return n;
}

template<typename Value>
void BoxTree<Value>::build_children(std::uint32_t parent, std::uint32_t* begin, std::uint32_t* end, std::size_t parts) {
    if (parts == 1) {
        const std::uint32_t child = build(begin, end);
        Node& node = nodes_[parent];
        node.items[node.count++] = child;
        return;
    }
    const std::size_t axis = widest_axis(begin, end);
    std::uint32_t* const half = begin + (end - begin) / 2;
    std::nth_element(begin, half, end, [&](std::uint32_t a, std::uint32_t b) {
        return middle(entries_[a].box, axis) < middle(entries_[b].box, axis);
    });
    build_children(parent, begin, half, parts / 2);
    build_children(parent, half, end, parts / 2);
}

template<typename Value>
std::size_t BoxTree<Value>::widest_axis(const std::uint32_t* begin, const std::uint32_t* end) const noexcept {
    std::size_t widest = 0;
    double most = -1;
    for (std::size_t k = 0; k < rank_; ++k) {
        double low = std::numeric_limits<double>::infinity(), high = -low;
        for (const std::uint32_t* i = begin; i != end; ++i) {
            low = std::min(low, middle(entries_[*i].box, k));
            high = std::max(high, middle(entries_[*i].box, k));
        }
        if (high - low > most) widest = k, most = high - low;
    }
    return widest;
}

/// The new node beside `n`, if that was full.
template<typename Value> std::uint32_t BoxTree<Value>::insert_below(std::uint32_t n, std::uint32_t entry) {
    const Box& box = entries_[entry].box;
    if (nodes_[n].count == 0)
        nodes_[n].bounds = box;
    else
        extend(nodes_[n].bounds, box);
    std::uint32_t item = entry;
    if (!nodes_[n].is_leaf) item = insert_below(nodes_[n].items[child_for(nodes_[n], box)], entry);
    if (item == none) return none;
    nodes_[n].items[nodes_[n].count++] = item;
    return nodes_[n].count <= fan ? none : split(n);
}

/// The one that grows least; of several the smallest.
template<typename Value>
std::uint32_t BoxTree<Value>::child_for(const Node& node, const Box& box) const noexcept {
    std::uint32_t best = 0;
    double least_growth = std::numeric_limits<double>::infinity(), least_size = least_growth;
    for (std::uint32_t i = 0; i < node.count; ++i) {
        ++num_looked_at_;
        const Box& bounds = box_of(node, i);
        const double size = size_of(bounds);
        const double growth = size_of(joined(bounds, box)) - size;
        if (growth > least_growth || (growth == least_growth && size >= least_size)) continue;
        best = i;
        least_growth = growth;
        least_size = size;
    }
    return best;
}

template<typename Value> void BoxTree<Value>::sort_along(Node& node, std::size_t axis) const {
    const auto place = [&](std::uint32_t item) {
        return middle(node.is_leaf ? entries_[item].box : nodes_[item].bounds, axis);
    };
    std::sort(node.items.begin(), node.items.begin() + node.count,
              [&](std::uint32_t a, std::uint32_t b) { return place(a) < place(b); });
}

/// Of the bounds of the first half of the items and those of the second; where they have nothing in common, less than
/// none by how far the halves are from one long strip.
template<typename Value>
double BoxTree<Value>::common_size_of_halves(const Node& node) const noexcept {
    const std::uint32_t half = node.count / 2;
    Box first = box_of(node, 0), second = box_of(node, half);
    for (std::uint32_t i = 1; i < half; ++i) extend(first, box_of(node, i));
    for (std::uint32_t i = half + 1; i < node.count; ++i) extend(second, box_of(node, i));
    if (boxes::overlaps(first, second, rank_)) return size_of(boxes::intersection(first, second));
    double sides = 0;
    for (std::size_t k = 0; k < rank_; ++k)
        sides +=
            static_cast<double>(first.end[k] - first.begin[k]) + static_cast<double>(second.end[k] - second.begin[k]);
    return -1 / sides;
}

/// Its second half becomes a node of its own, which is returned.
template<typename Value> std::uint32_t BoxTree<Value>::split(std::uint32_t n) {
    const std::uint32_t beside = new_node(nodes_[n].is_leaf);
    Node& node = nodes_[n];
    std::size_t best = 0, sorted = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < rank_; ++k) {
        sort_along(node, sorted = k);
        const double common = common_size_of_halves(node);
        if (common < least) best = k, least = common;
    }
    if (best != sorted) sort_along(node, best);
    const std::uint32_t half = node.count / 2;
    Node& other = nodes_[beside];
    other.count = node.count - half;
    std::copy_n(node.items.begin() + half, other.count, other.items.begin());
    node.count = half;
    tighten(node);
    tighten(other);
    return beside;
}

template<typename Value>
template<typename T, typename F>
void BoxTree<Value>::cut(const Box& region, T&& trims, F&& f) {
    if (root_ == none) return;
    cut_below(root_, region, trims, f);
    while (nodes_[root_].count <= 1 && !nodes_[root_].is_leaf) {
        free_nodes_.push_back(root_);
        root_ = nodes_[root_].count == 0 ? none : nodes_[root_].items[0];
        if (root_ == none) return;
    }
}

template<typename Value>
template<typename T, typename F>
void BoxTree<Value>::cut_below(std::uint32_t n, const Box& region, T& trims, F& f) {
    Node& node = nodes_[n];
    std::uint32_t kept = 0;
    bool changed = false;
    for (std::uint32_t i = 0; i < node.count; ++i) {
        const std::uint32_t item = node.items[i];
        bool stays = true;
        if (looks_and_meets(box_of(node, i), region)) {
            changed = true;
            if (!node.is_leaf) {
                cut_below(item, region, trims, f);
                stays = nodes_[item].count != 0;
                if (!stays) free_nodes_.push_back(item);
            } else if (Entry& entry = entries_[item]; !trims(std::as_const(entry)) || !trim(entry, region)) {
                free_entries_.push_back(item);
                f(std::move(entry));
                // NOLINTNEXTLINE(bugprone-use-after-move): whether it was moved from or not, it keeps nothing
                entry.value = Value();
                stays = false;
            }
        }
        if (stays) node.items[kept++] = item;
    }
    node.count = kept;
    if (changed && kept != 0) tighten(node);
}

}  // namespace kmm::graph
