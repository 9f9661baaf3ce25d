#include "rmm/pool/virtual_source.hpp"

#include <algorithm>
#include <utility>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using driver::Code;
using driver::DeviceGuard;
using driver::Status;
using heap::range;

constexpr Status no_memory{Code::out_of_memory, 0};
constexpr Status refused{Code::invalid_argument, 0};

// Pieces smaller than this share of the largest are melted (released and made anew as larger ones) where several are
// moved: the driver needs as long to release a piece as to map it.
constexpr std::size_t small_pieces_in_largest = 4;
constexpr std::size_t least_melted = 4;

void* pointer(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

/// What a request does not fill of its last piece cannot be moved: that piece had better be small.
template<typename Row> void largest_first(Row& r) {
    std::sort(r.begin(), r.end(),
              [](const auto& a, const auto& b) { return a.mapped().size_bytes > b.mapped().size_bytes; });
}

}  // namespace

virtual_source::virtual_source(driver::Driver& driver, int device, const virtual_source_options& options)
    : driver_(driver), device_(device), physical_(options.physical) {
    if (!driver_.capabilities().virtual_memory) {
        status_ = {Code::not_supported, 0};
        return;
    }
    DeviceGuard guard(driver_, device_);
    driver::DeviceProperties properties;
    if (status_ = driver_.properties(device_, &properties); !status_.ok()) return;
    if (status_ = driver_.granularity(device_, physical_, &granularity_); !status_.ok()) return;
    if (granularity_ == 0) {
        status_ = {Code::not_supported, 0};
        return;
    }
    const auto whole = [this](std::size_t bytes) { return bytes / granularity_ * granularity_; };
    maximum_bytes_ = whole(options.maximum_bytes);

    for (int peer = 0; peer < driver_.device_count(); ++peer) {
        bool reaches = peer == device_;
        const std::vector<int>& wanted = options.readers;
        if (!reaches && !wanted.empty() && std::find(wanted.begin(), wanted.end(), peer) == wanted.end()) continue;
        // A device that cannot be asked is one that cannot reach this memory.
        if (!reaches && !driver_.can_access_peer(peer, device_, &reaches).ok()) reaches = false;
        if (reaches) readers_.push_back(peer);
    }

    // More than the device has cannot be held, whatever the maximum.
    device_bytes_ = properties.total_memory_bytes;
    ceiling_bytes_ = device_bytes_;
    const std::size_t most = std::max(granularity_, whole(std::min(maximum_bytes_, properties.total_memory_bytes)));
    largest_piece_bytes_ = options.largest_piece_bytes == 0
                               ? heap::best_largest_piece(most, granularity_)
                               : std::max(granularity_, whole(options.largest_piece_bytes));
    std::size_t wanted = whole(std::min(most, ~std::size_t{0} / 2 / options.address_factor) * options.address_factor);
    holes_.reserve(1);
    void* base = nullptr;
    for (;;) {
        status_ = driver_.reserve_addresses(wanted, &base);
        if (status_.code != Code::out_of_memory || wanted == granularity_) break;
        wanted = std::max(granularity_, whole(wanted / 2));
    }
    if (!status_.ok()) return;
    reservation_ = {reinterpret_cast<std::uintptr_t>(base), wanted};
    holes_.add(reservation_);
}

virtual_source::~virtual_source() {
    if (reservation_.size_bytes == 0) return;
    DeviceGuard guard(driver_, device_);
    // Memory that cannot be unmapped or released stays with the driver: a destructor can neither report nor retry.
    for (const auto& [address, p] : pieces_) {
        (void)unmap(address, p);
        (void)release(p);
    }
    for (const node& n : spare_) {
        if (n.mapped().now == state::stuck) (void)unmap(n.key(), n.mapped());
        (void)release(n.mapped());
    }
    (void)driver_.release_addresses(pointer(reservation_.address), reservation_.size_bytes);
}

// ---- calls of the driver, counted

Status virtual_source::map(std::uintptr_t address, const piece& p) noexcept {
    const Status status = driver_.map(pointer(address), p.size_bytes, p.handle);
    if (!status.ok()) return status;
    ++counts_.map_calls;
    counts_.mapped_bytes += p.size_bytes;
    return status;
}

Status virtual_source::unmap(std::uintptr_t address, const piece& p) noexcept {
    const Status status = driver_.unmap(pointer(address), p.size_bytes);
    if (status.ok()) ++counts_.unmap_calls;
    return status;
}

Status virtual_source::allow_access(range r) noexcept {
    const Status status = driver_.set_access(pointer(r.address), r.size_bytes, readers_.data(), readers_.size());
    if (status.ok()) ++counts_.access_calls;
    return status;
}

Status virtual_source::release(const piece& p) noexcept {
    const Status status = driver_.release_physical(p.handle);
    if (!status.ok()) return status;
    ++counts_.release_calls;
    counts_.released_bytes += p.size_bytes;
    return status;
}

// ---- pieces between mapped and spare. None of these allocates: `complete` and `trim` have made the room.

void virtual_source::enter(node& n) noexcept {
    n.mapped().now = state::mapped;
    mapped_bytes_ += n.mapped().size_bytes;
    pieces_.insert(std::move(n));
}

virtual_source::node virtual_source::leave(piece_map::iterator at) noexcept {
    mapped_bytes_ -= at->second.size_bytes;
    return pieces_.extract(at);
}

void virtual_source::keep_spare(node& n, state now) noexcept {
    n.mapped().now = now;
    spare_bytes_ += n.mapped().size_bytes;
    spare_.push_back(std::move(n));
}

/// True once the piece is mapped nowhere.
bool virtual_source::unstick(node& n) noexcept {
    if (n.mapped().now != state::stuck) return true;
    if (!unmap(n.key(), n.mapped()).ok()) return false;
    holes_.add({n.key(), n.mapped().size_bytes});
    n.mapped().now = state::spare;
    return true;
}

/// Nothing is mapped at `r` any more. Growth goes on there if it was the end of the last.
void virtual_source::abandon(range r) noexcept {
    holes_.add(r);
    for (std::uintptr_t& f : frontiers_)
        if (f == r.end()) f = r.address;
}

// ---- rows

std::size_t virtual_source::headroom() const noexcept {
    return maximum_bytes_ - std::min(maximum_bytes_, held_bytes());
}

/// What the driver's answer tells about how much there is.
void virtual_source::note_ceiling(Status created) noexcept {
    if (created.ok())
        ceiling_bytes_ = device_bytes_;
    else if (created.code == Code::out_of_memory)
        ceiling_bytes_ = held_bytes();
}

/// Brings a row that will get up to `num_expected` pieces with `has_bytes` from elsewhere to what the plan wants,
/// by spare pieces and then fresh ones; makes room for everything that the row may meet. On failure the row is
/// empty again.
Status virtual_source::complete(row& r, std::size_t has_bytes, const heap::move_plan& plan, std::size_t num_expected) {
    const std::size_t may_create = headroom();
    const std::size_t missing = plan.new_bytes - std::min(plan.new_bytes, has_bytes);
    if (missing > spare_bytes_ + may_create) return no_memory;
    const auto make_room = [&](std::size_t num_pieces) {
        r.reserve(num_pieces);
        holes_.reserve(2 * num_pieces + 2);
        const std::size_t all = pieces_.size() + spare_.size() + num_pieces;
        if (spare_.capacity() < all) spare_.reserve(2 * all);
    };
    make_room(num_expected + spare_.size());
    const std::size_t spare = take_spare(r, missing);
    if (spare >= missing) return {};
    const std::size_t fresh = missing - spare;
    if (fresh > may_create) {  // some spare pieces are of no use at present
        put_back(r);
        return no_memory;
    }
    try {
        make_room(num_expected + r.size() + heap::num_pieces(fresh, largest_piece_bytes_));
        piece_map one;
        for (std::size_t left = fresh; left != 0; left -= r.back().mapped().size_bytes) {
            one.emplace(0, piece{std::min(left, largest_piece_bytes_), {}, state::planned});
            r.push_back(one.extract(one.begin()));
        }
    } catch (...) {
        put_back(r);
        throw;
    }
    const Status status = create(r);
    if (!status.ok()) put_back(r);
    note_ceiling(status);
    return status;
}

/// Takes spare pieces of at least `bytes` together, or all; the last piece may exceed the need.
std::size_t virtual_source::take_spare(row& r, std::size_t bytes) noexcept {
    std::size_t taken = 0;
    for (std::size_t i = spare_.size(); i != 0 && taken < bytes; --i) {
        if (!unstick(spare_[i - 1])) continue;
        taken += spare_[i - 1].mapped().size_bytes;
        r.push_back(std::move(spare_[i - 1]));
        drop_spare(i - 1);
    }
    spare_bytes_ -= taken;
    return taken;
}

/// Closes the gap that a piece leaves behind.
void virtual_source::drop_spare(std::size_t index) noexcept {
    if (index + 1 != spare_.size()) spare_[index] = std::move(spare_.back());
    spare_.pop_back();
}

Status virtual_source::create(piece& p) noexcept {
    const Status status = driver_.create_physical(device_, p.size_bytes, physical_, &p.handle);
    if (!status.ok()) return status;
    ++counts_.create_calls;
    counts_.created_bytes += p.size_bytes;
    return status;
}

Status virtual_source::create(row& r) noexcept {
    for (node& n : r) {
        piece& p = n.mapped();
        if (p.now != state::planned) continue;
        if (const Status status = create(p); !status.ok()) return status;
        p.now = state::fresh;
    }
    return {};
}

/// Maps the row at `target`, whose addresses have been taken. On failure nothing is mapped there and the addresses
/// are free.
Status virtual_source::map_row(row& r, range target) noexcept {
    Status status;
    std::uintptr_t at = target.address;
    std::size_t num_mapped = 0;
    for (; num_mapped < r.size(); ++num_mapped) {
        const piece& p = r[num_mapped].mapped();
        if (status = map(at, p); !status.ok()) break;
        at += p.size_bytes;
    }
    if (status.ok()) status = allow_access(target);
    if (status.ok()) return status;

    at = target.address;
    for (std::size_t i = 0; i < r.size(); ++i) {
        piece& p = r[i].mapped();
        if (i < num_mapped && !unmap(at, p).ok()) {
            if (p.now == state::mapped) abandon({r[i].key(), p.size_bytes});
            r[i].key() = at;
            p.now = state::stuck;
        } else {
            holes_.add({at, p.size_bytes});
        }
        at += p.size_bytes;
    }
    return status;
}

/// Where the last growth of an area went on, or would go on.
std::uintptr_t& virtual_source::frontier(std::uint32_t area) {
    if (area >= frontiers_.size()) frontiers_.resize(area + 1, 0);
    return frontiers_[area];
}

/// The row is mapped at `target`.
void virtual_source::settle(row& r, range target) noexcept {
    std::uintptr_t at = target.address;
    for (std::uintptr_t& f : frontiers_)
        if (f == at) f = target.end();
    for (node& n : r) {
        n.key() = at;
        at += n.mapped().size_bytes;
        enter(n);
    }
    r.clear();
}

/// Everything in the row, none of it mapped (but for what is stuck), returns to where it came from.
void virtual_source::put_back(row& r) noexcept {
    for (node& n : r) {
        switch (n.mapped().now) {
        case state::planned: break;
        case state::mapped: map_again(n); break;
        case state::fresh:
            if (!release(n.mapped()).ok()) keep_spare(n, state::spare);
            break;
        case state::spare:
        case state::stuck: keep_spare(n, n.mapped().now); break;
        }
    }
    r.clear();
}

void virtual_source::map_again(node& n) noexcept {
    const range home{n.key(), n.mapped().size_bytes};
    if (!map(home.address, n.mapped()).ok()) {
        abandon(home);
        keep_spare(n, state::spare);
    } else if (allow_access(home).ok()) {
        enter(n);
    } else if (unmap(home.address, n.mapped()).ok()) {
        abandon(home);
        keep_spare(n, state::spare);
    } else {
        keep_spare(n, state::stuck);
    }
}

// ---- what the engine calls

virtual_source::growth virtual_source::grow(std::size_t bytes, std::uint32_t area, std::uintptr_t* end_of_growth) {
    if (!status_.ok()) return {status_, {}};
    if (bytes == 0) return {refused, {}};
    if (bytes > maximum_bytes_) return {no_memory, {}};
    heap::move_plan plan;
    plan.possible = true;
    plan.area = area;
    plan.new_bytes = round_up(bytes);
    const remapping done = remap(plan, end_of_growth != nullptr ? end_of_growth : &frontier(area));
    return {done.status, done.status.ok() ? done.ranges.front() : range{}};
}

/// Chooses what is melted, and makes all nodes that `melt` will need.
virtual_source::melting virtual_source::prepare_melting(const heap::move_plan& plan, std::size_t moved_bytes) const {
    melting how;
    if (plan.fitting_bytes == 0) return how;
    const auto for_each_moved = [&](auto&& f) {
        for (const range& m : plan.moved)
            for (auto p = pieces_.find(m.address); p != pieces_.end() && p->first < m.end(); ++p)
                f(p->first, p->second.size_bytes);
    };
    const std::size_t small = largest_piece_bytes_ / small_pieces_in_largest;
    std::size_t num_melted = 0, melted_bytes = 0;
    for_each_moved([&](std::uintptr_t, std::size_t size) {
        if (size >= small) return;
        ++num_melted;
        melted_bytes += size;
    });
    if (num_melted >= least_melted)
        how.below_bytes = small;
    else
        num_melted = melted_bytes = 0;

    const std::size_t excess = moved_bytes - std::min(moved_bytes, plan.new_bytes);
    if (excess > melted_bytes) {
        std::size_t last_bytes = 0;
        for_each_moved([&](std::uintptr_t address, std::size_t size) {
            if (size < how.below_bytes || size <= excess || !heap::is_worth_cutting(size, plan.fitting_bytes) ||
                (last_bytes != 0 && size >= last_bytes))
                return;
            how.last = address;
            last_bytes = size;
        });
        if (last_bytes != 0) ++num_melted;
        melted_bytes += last_bytes;
    }
    if (num_melted == 0) return how;
    how.bytes = melted_bytes - std::min(melted_bytes, excess);
    how.homes.reserve(num_melted);
    how.parts.reserve(heap::num_pieces(how.bytes, largest_piece_bytes_));
    piece_map one;
    for (std::size_t left = how.bytes; left != 0; left -= how.parts.back().mapped().size_bytes) {
        one.emplace(0, piece{std::min(left, largest_piece_bytes_), {}, state::planned});
        how.parts.push_back(one.extract(one.begin()));
    }
    return how;
}

/// The pieces of the row that are melted are mapped nowhere. The driver has just got what it is asked for; if it has it
/// no more, the parts so far become spare when the row is put back.
Status virtual_source::melt(row& r, melting& how) noexcept {
    if (how.homes.capacity() == 0) return {};
    for (std::size_t i = r.size(); i != 0; --i) {
        const piece& p = r[i - 1].mapped();
        if (p.now != state::mapped || (p.size_bytes >= how.below_bytes && r[i - 1].key() != how.last)) continue;
        if (const Status status = release(p); !status.ok()) return status;
        how.homes.push_back({r[i - 1].key(), p.size_bytes});
        if (i != r.size()) r[i - 1] = std::move(r.back());
        r.pop_back();
    }
    for (node& part : how.parts) {
        if (const Status status = create(part.mapped()); !status.ok()) return status;
        part.mapped().now = state::spare;
        r.push_back(std::move(part));
    }
    return {};
}

/// Number of pieces of which `r` consists; 0 if it does not begin and end where pieces do.
std::size_t virtual_source::count_whole(range r) const noexcept {
    std::size_t count = 0;
    std::uintptr_t at = r.address;
    for (auto p = pieces_.find(at); p != pieces_.end() && p->first == at && at < r.end(); ++p, ++count)
        at += p->second.size_bytes;
    return at == r.end() ? count : 0;
}

range virtual_source::removable(range free) const noexcept {
    auto first = pieces_.lower_bound(free.address);
    range result{first == pieces_.end() ? free.end() : first->first, 0};
    for (auto p = first; p != pieces_.end() && p->first + p->second.size_bytes <= free.end(); ++p) {
        if (p->first != result.end()) break;
        result.size_bytes += p->second.size_bytes;
    }
    return result.size_bytes == 0 ? range{} : result;
}

heap::move_plan virtual_source::plan(std::size_t bytes, std::span<const heap::free_range> free, std::uint32_t area,
                                     const growth_limits& limits) const {
    if (!status_.ok() || bytes == 0 || bytes > maximum_bytes_) return {};
    std::vector<heap::free_extent> extents;
    std::vector<heap::movable_piece> pieces;
    for (std::size_t next = 0; next < free.size();) {
        std::size_t at = next;
        range where = free[next++].where;
        for (; next < free.size() && free[next].where.address == where.end() && free[next].area == free[at].area;
             ++next)
            where.size_bytes += free[next].where.size_bytes;
        const bool here = free[at].area == area;
        for (auto p = pieces_.lower_bound(where.address);
             p != pieces_.end() && p->first + p->second.size_bytes <= where.end(); ++p) {
            const range piece{p->first, p->second.size_bytes};
            while (free[at].where.end() <= piece.address) ++at;
            bool ready = true;
            for (std::size_t k = at; k < next && free[k].where.address < piece.end(); ++k) ready &= free[k].ready;
            pieces.push_back({piece, extents.size(), ready});
        }
        extents.push_back(
            {where, here ? holes_.room_before(where.address) : 0, here ? holes_.room_behind(where.end()) : 0});
    }
    heap::supply from{spare_bytes_, 0, std::min(limits.fresh_bytes, headroom()), limits.step_bytes};
    from.eager_fresh_bytes = std::min(limits.eager_fresh_bytes, from.fresh_bytes);
    heap::move_plan result = heap::plan_moves(bytes, extents, pieces, from, granularity_, largest_piece_bytes_);
    result.area = area;
    std::size_t used = mapped_bytes_ + bytes;
    for (const heap::free_range& f : free) used -= f.where.size_bytes;
    result.fitting_bytes = fitting_piece(used);
    return result;
}

std::size_t virtual_source::fitting_piece(std::size_t used_bytes) const noexcept {
    const std::size_t most = std::min({maximum_bytes_, device_bytes_, std::max(ceiling_bytes_, held_bytes())});
    return heap::fitting_piece(used_bytes, most, largest_piece_bytes_, granularity_);
}

/// What leaves its addresses goes into the row; with a failure, what has left them so far.
Status virtual_source::unmap_all(const std::vector<range>& moved, row& r) {
    for (const range& m : moved)
        for (auto p = pieces_.find(m.address); p != pieces_.end() && p->first < m.end();) {
            if (const Status status = unmap(p->first, p->second); !status.ok()) return status;
            auto next = std::next(p);
            r.push_back(leave(p));
            p = next;
        }
    return {};
}

/// Where the row goes, as planned. `grows`: from `end_of_growth` on, if there is room.
range virtual_source::target_of(const heap::move_plan& plan, const row& r, bool grows,
                                std::uintptr_t end_of_growth) const {
    range target{end_of_growth, 0};
    for (const node& n : r) target.size_bytes += n.mapped().size_bytes;
    if (plan.where == heap::side::behind)
        target.address = plan.kept.end();
    else if (plan.where == heap::side::before)
        target.address = plan.kept.address - target.size_bytes;
    else if (!grows || holes_.room_behind(target.address) < target.size_bytes)
        target.address = holes_.roomiest(target.size_bytes, granularity_).value_or(0);
    return target;
}

virtual_source::remapping virtual_source::remap(const heap::move_plan& plan, std::uintptr_t* end_of_growth) {
    remapping result{status_, plan.moved};
    if (!status_.ok()) return result;
    std::size_t moved_bytes = 0, num_moved = 0;
    bool valid = plan.possible && plan.new_bytes != 0 && plan.new_bytes % granularity_ == 0 &&
                 plan.fitting_bytes % granularity_ == 0;
    for (const range& m : plan.moved) {
        const std::size_t count = count_whole(m);
        valid &= count != 0;
        num_moved += count;
        moved_bytes += m.size_bytes;
    }
    if (!valid) {
        result.status = refused;
        return result;
    }
    DeviceGuard guard(driver_, device_);
    std::vector<range> ranges;
    ranges.reserve(num_moved + 1);
    melting how = prepare_melting(plan, moved_bytes);
    row r;
    if (result.status = complete(r, moved_bytes, plan, num_moved + how.parts.size()); !result.status.ok())
        return result;

    result.status = unmap_all(plan.moved, r);
    if (result.status.ok()) result.status = melt(r, how);

    const bool grows = num_moved == 0 && plan.where == heap::side::anywhere;
    const range target = target_of(plan, r, grows, *end_of_growth);
    if (result.status.ok() && !holes_.take(target)) result.status = no_memory;
    if (result.status.ok()) {
        largest_first(r);
        result.status = map_row(r, target);
    }
    if (!result.status.ok()) {
        put_back(r);
        for (const range& home : how.homes) abandon(home);
        if (!how.homes.empty()) note_ceiling(result.status);
        for (const range& m : plan.moved)
            for (auto p = pieces_.lower_bound(m.address); p != pieces_.end() && p->first < m.end(); ++p)
                append_merged(ranges, {p->first, p->second.size_bytes});
        result.ranges.swap(ranges);
        return result;
    }

    for (auto m = plan.moved.rbegin(); m != plan.moved.rend(); ++m) abandon(*m);
    settle(r, target);
    if (grows) *end_of_growth = target.end();
    if (moved_bytes != 0) ++counts_.remaps;
    counts_.moved_bytes += moved_bytes;
    ranges.push_back(target);
    result.ranges.swap(ranges);
    return result;
}

range virtual_source::piece_across(std::uintptr_t at) const noexcept {
    auto p = pieces_.lower_bound(at);
    if (p == pieces_.begin()) return {};
    --p;
    const range piece{p->first, p->second.size_bytes};
    return at < piece.end() ? piece : range{};
}

virtual_source::cutting virtual_source::cut(std::uintptr_t at) {
    const range home = piece_across(at);
    if (!status_.ok()) return {status_, home};
    if (home.size_bytes == 0 || (at - home.address) % granularity_ != 0) return {refused, home};
    DeviceGuard guard(driver_, device_);
    row whole, parts;
    whole.reserve(1);
    parts.reserve(2);
    holes_.reserve(4);
    if (const std::size_t all = pieces_.size() + spare_.size() + 2; spare_.capacity() < all) spare_.reserve(2 * all);
    piece_map one;
    for (const std::size_t size : {at - home.address, home.end() - at}) {
        one.emplace(0, piece{size, {}, state::planned});
        parts.push_back(one.extract(one.begin()));
    }

    const auto place = pieces_.find(home.address);
    if (const Status status = unmap(place->first, place->second); !status.ok()) return {status, home};
    whole.push_back(leave(place));
    if (const Status status = release(whole.front().mapped()); !status.ok()) {
        put_back(whole);
        return {status, pieces_.contains(home.address) ? home : range{}};
    }
    Status status = create(parts);
    if (!status.ok()) {
        put_back(parts);
        // Rather one piece than none.
        parts.push_back(std::move(whole.front()));
        parts.back().mapped().now = state::planned;
        if (!create(parts).ok()) {
            abandon(home);
            note_ceiling(status);
            return {status, {}};
        }
    }
    if (const Status mapped = map_row(parts, home); !mapped.ok()) {
        for (node& n : parts)
            if (n.mapped().now == state::fresh) n.mapped().now = state::spare;
        put_back(parts);
        return {mapped, {}};
    }
    settle(parts, home);
    return {status, home};
}

virtual_source::trimming virtual_source::trim(range pieces) {
    trimming result{status_, 0, pieces};
    const std::size_t count = status_.ok() ? count_whole(pieces) : 0;
    if (status_.ok() && count == 0) result.status = refused;
    if (!result.status.ok()) return result;
    DeviceGuard guard(driver_, device_);
    holes_.reserve(count + 1);
    // From the end, so that one range remains after a failure.
    while (result.left.size_bytes != 0) {
        const auto p = std::prev(pieces_.lower_bound(result.left.end()));
        if (result.status = unmap(p->first, p->second); !result.status.ok()) break;
        node n = leave(p);
        const std::size_t size = n.mapped().size_bytes;
        abandon({n.key(), size});
        result.left.size_bytes -= size;
        if (result.status = release(n.mapped()); !result.status.ok()) {
            keep_spare(n, state::spare);
            break;
        }
        result.released_bytes += size;
    }
    return result;
}

virtual_source::trimming virtual_source::release_spare() {
    trimming result{status_, 0, {}};
    if (!status_.ok()) return result;
    DeviceGuard guard(driver_, device_);
    holes_.reserve(spare_.size() + 1);
    for (std::size_t i = spare_.size(); i != 0; --i) {
        node& n = spare_[i - 1];
        if (!unstick(n)) continue;
        if (const Status status = release(n.mapped()); !status.ok()) {
            if (result.status.ok()) result.status = status;
            continue;
        }
        result.released_bytes += n.mapped().size_bytes;
        drop_spare(i - 1);
    }
    spare_bytes_ -= result.released_bytes;
    return result;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
