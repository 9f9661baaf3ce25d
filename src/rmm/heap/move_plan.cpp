#include "rmm/heap/move_plan.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {
namespace {

constexpr std::size_t no_extent = ~std::size_t{0};

/// One way to do it: keep this extent (or none), and take what it needs from everywhere else.
class attempt {
  public:
    attempt(std::span<const movable_piece> pieces, const std::vector<std::uint32_t>& order, const supply& from,
            std::size_t largest_piece_bytes, const piece_costs& costs)
        : pieces_(pieces), order_(order), from_(from), largest_(largest_piece_bytes), costs_(costs) {}

    /// Fills `chosen` (indices of pieces) and all figures of the plan; false if it cannot be done.
    bool make(std::size_t need, std::size_t kept_extent, move_plan& plan, std::vector<std::uint32_t>& chosen) const {
        chosen.clear();
        plan = {};
        plan.new_bytes = need;
        const std::size_t spare = std::min(need, from_.spare_bytes);
        std::size_t left = need - spare;
        const std::size_t eager = std::min(left, from_.eager_fresh_bytes);
        left -= eager;

        std::uint32_t last_fit = 0;
        bool has_last_fit = false;
        for (const std::uint32_t index : order_) {
            if (left == 0) break;
            const movable_piece& p = pieces_[index];
            if (p.extent == kept_extent) continue;
            // The last piece only has to cover `left`: choose the smallest that does.
            if (p.where.size_bytes >= left && (!has_last_fit || p.ready == pieces_[last_fit].ready)) {
                if (!has_last_fit || p.where.size_bytes < pieces_[last_fit].where.size_bytes) last_fit = index;
                has_last_fit = true;
                continue;
            }
            if (has_last_fit) break;
            chosen.push_back(index);
            left -= p.where.size_bytes;
        }
        if (left != 0 && has_last_fit) {
            chosen.push_back(last_fit);
            left = 0;
        }
        if (left > from_.fresh_bytes - eager) return false;

        plan.possible = true;
        plan.fresh_bytes = eager + left;
        plan.num_moved = chosen.size();
        plan.cost_ns = chosen.size() * std::uint64_t{costs_.move_ns} +
                       num_pieces(plan.fresh_bytes, largest_) * std::uint64_t{costs_.fresh_ns} +
                       num_pieces(spare, largest_) * std::uint64_t{costs_.spare_ns} +
                       (need >> 20) * std::uint64_t{costs_.mib_ns};
        for (const std::uint32_t index : chosen) {
            plan.waits |= !pieces_[index].ready;
            plan.cost_ns += (pieces_[index].where.size_bytes >> 20) * std::uint64_t{costs_.mib_ns};
        }
        if (plan.waits) plan.cost_ns += costs_.wait_ns;
        return true;
    }

  private:
    std::span<const movable_piece> pieces_;
    const std::vector<std::uint32_t>& order_;
    const supply& from_;
    std::size_t largest_;
    const piece_costs& costs_;
};

/// Ready ones first, then large ones. Of equal pieces those of the smallest extents: this empties small extents, which
/// fit few requests, and leaves large ones whole.
std::vector<std::uint32_t> in_order(std::span<const free_extent> extents, std::span<const movable_piece> pieces) {
    std::vector<std::uint32_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        const movable_piece &p = pieces[a], &q = pieces[b];
        if (p.ready != q.ready) return p.ready;
        if (p.where.size_bytes != q.where.size_bytes) return p.where.size_bytes > q.where.size_bytes;
        const std::size_t of_p = extents[p.extent].where.size_bytes, of_q = extents[q.extent].where.size_bytes;
        if (of_p != of_q) return of_p < of_q;
        return p.where.address > q.where.address;
    });
    return order;
}

/// Of the extents that have room beside them, the largest first.
std::vector<std::uint32_t> with_room(std::span<const free_extent> extents) {
    std::vector<std::uint32_t> by_size;
    for (std::size_t i = 0; i < extents.size(); ++i)
        if (extents[i].room_before != 0 || extents[i].room_behind != 0)
            by_size.push_back(static_cast<std::uint32_t>(i));
    std::sort(by_size.begin(), by_size.end(), [&](std::uint32_t a, std::uint32_t b) {
        return extents[a].where.size_bytes > extents[b].where.size_bytes;
    });
    return by_size;
}

/// Where nothing is moved, fresh memory comes in steps: as much as one has, if there is room for it.
void fill_step(move_plan& plan, std::span<const free_extent> extents, const supply& from, std::size_t granularity) {
    if (!plan.possible || plan.num_moved != 0 || plan.fresh_bytes == 0 || plan.fresh_bytes >= from.step_bytes) return;
    std::size_t room = from.step_bytes;
    for (const free_extent& e : extents)
        if (plan.where != side::anywhere && e.where == plan.kept)
            room = plan.where == side::behind ? e.room_behind : e.room_before;
    const std::size_t more = std::min({from.step_bytes, from.fresh_bytes}) / granularity * granularity;
    const std::size_t new_bytes = plan.new_bytes - plan.fresh_bytes + more;
    if (more <= plan.fresh_bytes || new_bytes > room) return;
    plan.fresh_bytes = more;
    plan.new_bytes = new_bytes;
}

}  // namespace

std::size_t best_largest_piece(std::size_t most_bytes, std::size_t granularity) noexcept {
    constexpr std::size_t least = std::size_t{8} << 20, most = std::size_t{512} << 20;
    const std::size_t size = std::bit_floor(std::clamp(most_bytes / 512, least, most));
    return std::max(granularity, size / granularity * granularity);
}

std::size_t fitting_piece(std::size_t used_bytes, std::size_t most_bytes, std::size_t largest_piece_bytes,
                          std::size_t granularity) noexcept {
    const std::size_t left = most_bytes - std::min(most_bytes, used_bytes);
    const double share =
        most_bytes == 0 ? 0 : std::min(1.0, 2 * static_cast<double>(left) / static_cast<double>(most_bytes));
    const auto size = static_cast<std::size_t>(static_cast<double>(largest_piece_bytes) * share * share * share);
    return std::max(granularity, std::max(size, largest_piece_bytes / 32) / granularity * granularity);
}

std::size_t small_request_limit(std::size_t most_bytes, std::size_t granularity) noexcept {
    constexpr std::size_t most = std::size_t{8} << 20;
    return std::max(granularity, std::bit_floor(std::min(most_bytes / 4096, most)));
}

std::size_t whole_granules_from(std::size_t most_bytes, std::size_t granularity) noexcept {
    constexpr std::size_t granules_in_large_source = 20480, least_granules = 4;
    const std::size_t num_granules = std::max(std::size_t{1}, most_bytes / granularity);
    return granularity * least_granules * std::max(std::size_t{1}, granules_in_large_source / num_granules);
}

std::size_t eager_growth(std::size_t peak_bytes, std::size_t held_bytes) noexcept {
    const std::size_t slack = peak_bytes / 16 * 7;
    return peak_bytes + slack - std::min(peak_bytes + slack, held_bytes);
}

move_plan plan_moves(std::size_t bytes, std::span<const free_extent> extents, std::span<const movable_piece> pieces,
                     const supply& from, std::size_t granularity, std::size_t largest_piece_bytes,
                     const piece_costs& costs) {
    const auto round_up = [=](std::size_t n) { return (n + granularity - 1) / granularity * granularity; };
    const std::vector<std::uint32_t> order = in_order(extents, pieces);
    const attempt attempts(pieces, order, from, largest_piece_bytes, costs);
    move_plan best;
    std::vector<std::uint32_t> best_chosen, chosen;
    const auto consider = [&](std::size_t kept_extent, std::size_t need) {
        move_plan plan;
        if (!attempts.make(need, kept_extent, plan, chosen)) return;
        if (best.possible && best.cost_ns <= plan.cost_ns) return;
        if (kept_extent != no_extent) {
            const free_extent& e = extents[kept_extent];
            // The last piece that is moved may be more than is needed, and so may the last spare one.
            std::size_t room = plan.fresh_bytes + from.spare_bytes;
            for (const std::uint32_t index : chosen) room += pieces[index].where.size_bytes;
            room = std::max(room, need);
            if (e.room_behind < room && e.room_before < room) return;
            plan.where = e.room_behind >= room ? side::behind : side::before;
            plan.kept = e.where;
        }
        best = std::move(plan);
        best_chosen.swap(chosen);
    };

    // Of the extents that have the room the largest needs least beside it; smaller ones are tried too, as its own
    // pieces may be what is needed.
    constexpr std::size_t num_tried = 4;
    std::size_t tried = 0;
    for (const std::uint32_t i : with_room(extents)) {
        const free_extent& e = extents[i];
        if (e.where.size_bytes >= bytes) continue;
        const std::size_t need = round_up(bytes - e.where.size_bytes);
        if (std::max(e.room_behind, e.room_before) < need) continue;
        consider(i, need);
        if (++tried == num_tried) break;
    }
    consider(no_extent, round_up(bytes));

    fill_step(best, extents, from, granularity);
    std::sort(best_chosen.begin(), best_chosen.end(),
              [&](std::uint32_t a, std::uint32_t b) { return pieces[a].where.address < pieces[b].where.address; });
    for (const std::uint32_t index : best_chosen) append_merged(best.moved, pieces[index].where);
    return best;
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
