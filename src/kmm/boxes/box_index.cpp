// Loading and searching the tree of BoxIndex. Pure; any thread.
#include "kmm/boxes/box_index.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace kmm::boxes {

namespace {

// Most boxes of a leaf, which are compared one by one. A tree that is one leaf may have twice as many.
constexpr std::size_t leaf_boxes = 8;
// Most boxes that a cut is chosen by. More find no better place, and cuts near the leaves still see every box.
constexpr std::size_t most_samples = 24;

}  // namespace

/// Makes the nodes, and the order of the boxes in their leaves. Lives while the index is made.
class BoxIndex::Loader {
  public:
    Loader(BoxIndex& index, std::size_t count) : index_(index), rank_(index.rank_), order_(count), scratch_(count) {
        std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    }

    void add_subtree(std::size_t first, std::size_t last);
    /// Moves the boxes to where their leaves have them.
    void finish() {
        std::vector<std::int64_t> sides;
        sides.reserve(index_.sides_.size());
        for (const std::uint32_t box : order_) sides.insert(sides.end(), sides_of(box), sides_of(box) + 2 * rank_);
        index_.sides_ = std::move(sides);
        index_.numbers_ = std::move(order_);
    }

  private:
    /// A plane between boxes: those that begin before it go below.
    struct Cut {
        std::size_t axis = 0;
        std::int64_t at = 0;
        double cost = std::numeric_limits<double>::infinity();
        double cells = 0;  ///< about as many boxes lie side by side along the axis
    };

    const std::int64_t* sides_of(std::uint32_t box) const noexcept { return index_.sides_.data() + 2 * rank_ * box; }
    void add_bounds(std::size_t first, std::size_t last);
    std::size_t split(std::size_t first, std::size_t last);
    Cut best_cut(std::size_t first, std::size_t last);
    void consider_axis(std::size_t axis, Cut& best);
    std::size_t partition(std::size_t first, std::size_t last, const Cut& cut);
    std::size_t halve(std::size_t first, std::size_t last);

    BoxIndex& index_;
    const std::size_t rank_;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> scratch_;
    std::vector<std::uint32_t> samples_;
    std::vector<std::int64_t> begins_;
    std::vector<std::int64_t> ends_;
};

void BoxIndex::Loader::add_bounds(std::size_t first, std::size_t last) {
    const std::size_t at = index_.bounds_.size();
    const std::int64_t* const one = sides_of(order_[first]);
    index_.bounds_.insert(index_.bounds_.end(), one, one + 2 * rank_);
    std::int64_t* const bounds = index_.bounds_.data() + at;
    for (std::size_t i = first + 1; i < last; ++i) {
        const std::int64_t* const sides = sides_of(order_[i]);
        for (std::size_t k = 0; k < 2 * rank_; k += 2) {
            bounds[k] = std::min(bounds[k], sides[k]);
            bounds[k + 1] = std::max(bounds[k + 1], sides[k + 1]);
        }
    }
}

// Each part has at least a sixteenth of the boxes: the depth is O(log n), whatever the boxes.
void BoxIndex::Loader::add_subtree(std::size_t first, std::size_t last) {
    const std::size_t at = index_.nodes_.size();
    const std::size_t count = last - first;
    Node node;
    node.first = static_cast<std::uint32_t>(first);
    node.count = static_cast<std::uint32_t>(count);
    node.is_leaf = count <= leaf_boxes || (at == 0 && count <= 2 * leaf_boxes);
    index_.nodes_.push_back(node);
    add_bounds(first, last);
    if (!node.is_leaf) {
        const std::size_t middle = split(first, last);
        add_subtree(first, middle);
        add_subtree(middle, last);
    }
    index_.nodes_[at].after = static_cast<std::uint32_t>(index_.nodes_.size());
}

std::size_t BoxIndex::Loader::split(std::size_t first, std::size_t last) {
    const Cut cut = best_cut(first, last);
    if (cut.cost < std::numeric_limits<double>::infinity()) {
        const std::size_t middle = partition(first, last, cut);
        const std::size_t least = (last - first) / 16 + 1;
        if (middle - first >= least && last - middle >= least) return middle;
    }
    return halve(first, last);
}

BoxIndex::Loader::Cut BoxIndex::Loader::best_cut(std::size_t first, std::size_t last) {
    const std::size_t count = last - first;
    const std::size_t num_samples = std::min(count, most_samples);
    samples_.clear();
    for (std::size_t i = 0; i < num_samples; ++i) samples_.push_back(order_[first + i * count / num_samples]);
    Cut best;
    for (std::size_t k = 0; k < rank_; ++k) consider_axis(k, best);
    return best;
}

void BoxIndex::Loader::consider_axis(std::size_t axis, Cut& best) {
    begins_.clear();
    ends_.clear();
    double widths = 0;
    for (const std::uint32_t box : samples_) {
        const std::int64_t begin = sides_of(box)[2 * axis], end = sides_of(box)[2 * axis + 1];
        begins_.push_back(begin);
        ends_.push_back(end);
        widths += static_cast<double>(end) - static_cast<double>(begin);
    }
    std::sort(begins_.begin(), begins_.end());
    std::sort(ends_.begin(), ends_.end());
    const std::size_t count = samples_.size();
    const double length = static_cast<double>(ends_.back()) - static_cast<double>(begins_.front());
    const double cells = length * static_cast<double>(count) / widths;
    std::int64_t last = begins_.front();
    for (std::size_t eighth = 1; eighth < 8; ++eighth) {
        const std::int64_t at = begins_[eighth * count / 8];
        if (at == last) continue;
        last = at;
        const auto below = std::lower_bound(begins_.begin(), begins_.end(), at) - begins_.begin();
        const auto across = below - (std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
        // Boxes that lie across are met from both sides, uneven parts make the tree deeper.
        const double uneven = std::abs(static_cast<double>(below) - static_cast<double>(count) / 2);
        const double cost = static_cast<double>(across) + uneven / 2;
        if (cost < best.cost || (cost == best.cost && cells > best.cells)) best = {axis, at, cost, cells};
    }
}

std::size_t BoxIndex::Loader::partition(std::size_t first, std::size_t last, const Cut& cut) {
    std::size_t below = first, above = 0;
    for (std::size_t i = first; i < last; ++i) {
        const std::uint32_t box = order_[i];
        if (sides_of(box)[2 * cut.axis] < cut.at)
            order_[below++] = box;
        else
            scratch_[above++] = box;
    }
    std::copy_n(scratch_.begin(), above, order_.begin() + static_cast<std::ptrdiff_t>(below));
    return below;
}

/// Where no cut leaves enough on both sides: by where the boxes begin, on the first axis on which they differ.
std::size_t BoxIndex::Loader::halve(std::size_t first, std::size_t last) {
    const std::size_t middle = first + (last - first) / 2;
    const auto at = [&](std::size_t place) { return order_.begin() + static_cast<std::ptrdiff_t>(place); };
    std::nth_element(at(first), at(middle), at(last), [&](std::uint32_t a, std::uint32_t b) {
        for (std::size_t k = 0; k < 2 * rank_; k += 2)
            if (sides_of(a)[k] != sides_of(b)[k]) return sides_of(a)[k] < sides_of(b)[k];
        return a < b;
    });
    return middle;
}

void BoxIndex::load(std::size_t count) {
    if (count == 0) return;
    Loader loader(*this, count);
    loader.add_subtree(0, count);
    loader.finish();
}

std::size_t BoxIndex::find(const Box& region, std::size_t* looked_at) const noexcept {
    std::size_t found = none, steps = 0;
    // Of boxes that touch, each may contain an empty region: only then there is more than one.
    const bool is_one = !is_empty(region, rank_);
    for (std::size_t at = 0; at < nodes_.size() && !(is_one && found != none);) {
        const Node& node = nodes_[at];
        ++steps;
        if (!contains_region(bounds(at), region)) {
            at = node.after;
            continue;
        }
        ++at;
        if (!node.is_leaf) continue;
        for (std::size_t i = node.first; i < std::size_t{node.first} + node.count; ++i) {
            ++steps;
            if (!contains_region(sides(i), region)) continue;
            found = std::min(found, std::size_t{numbers_[i]});
            if (is_one) break;
        }
    }
    if (looked_at != nullptr) *looked_at += steps;
    return found;
}

bool BoxIndex::find_overlap_of(const Node& a, const Node& b, std::size_t* places, std::size_t& steps) const {
    const bool is_same = &a == &b;
    const std::int64_t* const other = bounds(static_cast<std::size_t>(&b - nodes_.data()));
    for (std::size_t i = a.first; i < std::size_t{a.first} + a.count; ++i) {
        ++steps;
        if (!is_same && !meet(sides(i), other)) continue;
        for (std::size_t j = is_same ? i + 1 : b.first; j < std::size_t{b.first} + b.count; ++j) {
            ++steps;
            if (!meet(sides(i), sides(j))) continue;
            places[0] = i;
            places[1] = j;
            return true;
        }
    }
    return false;
}

bool BoxIndex::find_overlap(std::size_t* first, std::size_t* second, std::size_t* looked_at) const {
    // Each pair of subtrees that may share elements, from the root with itself down to pairs of leaves.
    std::vector<std::pair<std::size_t, std::size_t>> open;
    if (!nodes_.empty()) open.emplace_back(0, 0);
    std::size_t steps = 0, places[2] = {};
    bool found = false;
    while (!found && !open.empty()) {
        const auto [at, other] = open.back();
        open.pop_back();
        const Node& a = nodes_[at];
        const Node& b = nodes_[other];
        if (at == other && !a.is_leaf) {
            const std::size_t low = at + 1, high = nodes_[low].after;
            open.insert(open.end(), {{low, high}, {high, high}, {low, low}});
            continue;
        }
        ++steps;
        if (at != other && !meet(bounds(at), bounds(other))) continue;
        if (a.is_leaf && b.is_leaf) {
            found = find_overlap_of(a, b, places, steps);
        } else if (b.is_leaf || (!a.is_leaf && a.count >= b.count)) {
            open.insert(open.end(), {{nodes_[at + 1].after, other}, {at + 1, other}});
        } else {
            open.insert(open.end(), {{at, nodes_[other + 1].after}, {at, other + 1}});
        }
    }
    if (looked_at != nullptr) *looked_at += steps;
    if (!found) return false;
    *first = std::min(numbers_[places[0]], numbers_[places[1]]);
    *second = std::max(numbers_[places[0]], numbers_[places[1]]);
    return true;
}

}  // namespace kmm::boxes
