#include "ranks/rank_planner.hpp"

#include <algorithm>
#include <utility>

namespace kmm::ranks {

namespace {

constexpr bool may_write(AccessKind kind) noexcept { return kind != AccessKind::read; }

/// The k-th axis of the domain is that of at most one axis of the array, so that a hull which has no gaps along any
/// axis is full.
bool is_box_of_boxes(const RuleAccess& access, std::size_t rank, const DomainRule& domain) noexcept {
    for (std::size_t k = 0; k < rank; ++k) {
        const std::uint8_t axis = access.axes[k].axis;
        if (axis == AxisRule::fixed || domain.num_tiles(axis) < 2) continue;
        for (std::size_t j = 0; j < k; ++j)
            if (access.axes[j].axis == axis) return false;
    }
    return true;
}

/// One for each chunk, and one for the submit itself if these are several.
constexpr std::size_t numbers_of(std::size_t num_chunks) noexcept {
    return num_chunks > 1 ? num_chunks + 1 : num_chunks;
}

/// Data outranks order; what is kept of a snapshot is another reason.
void sort_edges(std::vector<RankEdge>& edges) {
    std::sort(edges.begin(), edges.end(), [](const RankEdge& a, const RankEdge& b) {
        return a.before != b.before ? a.before < b.before : a.kind < b.kind;
    });
    const auto same = [](const RankEdge& a, const RankEdge& b) {
        return a.before == b.before &&
               (a.kind == b.kind || (a.kind == RankEdge::Kind::data && b.kind == RankEdge::Kind::order));
    };
    edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
}

}  // namespace

RankPlanner::RankPlanner(RankNumber num_ranks, std::uint32_t owners_of_rank, RankNumber rank)
    : owners_of_rank_(owners_of_rank),
      num_owners_(std::size_t{num_ranks} * owners_of_rank),
      first_owner_(rank == every_rank ? 0 : std::size_t{rank} * owners_of_rank),
      end_owner_(rank == every_rank ? num_owners_ : first_owner_ + owners_of_rank),
      rank_(rank) {}

std::uint32_t RankPlanner::add_array(std::size_t rank, const Box& box) {
    arrays_.emplace_back(rank, box);
    return static_cast<std::uint32_t>(arrays_.size() - 1);
}

// ------------------------------------------------------------------------------------------------ who uses a box

Box RankPlanner::region_of(const Kept& submit, std::size_t access, std::size_t chunk) {
    ++num_looked_at_;
    return submit.regions[access].region(submit.domain.chunk(chunk));
}

template<typename W, typename F>
void RankPlanner::each_user_that(const Use& use, const Box& box, W&& wants, F&& f) {
    const Kept& submit = submits_[use.submit];
    const RegionRule& rule = submit.regions[use.access];
    const auto look = [&](std::size_t chunk) {
        if (!wants(chunk)) return true;
        const Box region = region_of(submit, use.access, chunk);
        return !boxes::overlaps(region, box, rule.rank()) || f(chunk, boxes::intersection(region, box));
    };
    if (use.chunk != every_chunk) return static_cast<void>(look(use.chunk));
    const DomainBox places = rule.places_that_use(submit.domain, box);
    ++num_looked_at_;
    std::int64_t at[domain_rank];
    for (at[2] = places.axes[2].begin; at[2] < places.axes[2].end; ++at[2])
        for (at[1] = places.axes[1].begin; at[1] < places.axes[1].end; ++at[1])
            for (at[0] = places.axes[0].begin; at[0] < places.axes[0].end; ++at[0])
                if (!look(submit.domain.chunk_at(at))) return;
}

template<typename F> void RankPlanner::each_user(const Use& use, const Box& box, F&& f) {
    each_user_that(use, box, [](std::size_t) { return true; }, f);
}

template<typename F> void RankPlanner::each_other_user(const Use& use, const Box& box, F&& f) {
    const DomainRule& domain = submits_[use.submit].domain;
    each_user_that(
        use, box, [&](std::size_t chunk) { return !is_own(domain.owner(chunk)); },
        [&](std::size_t chunk, const Box& part) {
            f(chunk, part);
            return true;
        });
}

/// Goes through the rank's tasks where these are fewer than those that use the box.
template<typename F> void RankPlanner::each_own_user(const Use& use, const Box& box, F&& f) {
    const Kept& submit = submits_[use.submit];
    const RegionRule& rule = submit.regions[use.access];
    const auto tell = [&](std::size_t chunk, const Box& part) {
        f(chunk, part);
        return true;
    };
    if (use.chunk == every_chunk) {
        std::size_t num_places = 1;
        for (const Interval& along : rule.places_that_use(submit.domain, box).axes)
            num_places *= static_cast<std::size_t>(along.size());
        ++num_looked_at_;
        if (num_places > submit.domain.num_chunks_of(first_owner_, end_owner_))
            return each_own_task(submit, [&](std::size_t chunk) {
                const Box region = region_of(submit, use.access, chunk);
                if (boxes::overlaps(region, box, rule.rank())) f(chunk, boxes::intersection(region, box));
            });
    }
    each_user_that(use, box, [&](std::size_t chunk) { return is_own(submit.domain.owner(chunk)); }, tell);
}

template<typename F> void RankPlanner::each_own_task(const Kept& submit, F&& f) {
    const std::size_t count = submit.domain.num_chunks_of(first_owner_, end_owner_);
    for (std::size_t n = 0; n < count; ++n) f(submit.domain.chunk_of(first_owner_, end_owner_, n));
}

// -------------------------------------------------------------------------------------------------------- checks

bool RankPlanner::refuse(RuleRefusal::Reason reason, std::size_t first, std::size_t second, const Box& region) {
    refusal_ = {reason, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second), region};
    return false;
}

bool RankPlanner::may_be_submitted(const RuleSubmit& submit, const Kept& kept) {
    if (submit.domain.num_chunks() > 0 && submit.domain.num_owners() != num_owners_)
        return refuse(RuleRefusal::Reason::owners, 0, 0, Box());
    return check_writes(submit, kept) && check_content(submit, kept);
}

bool RankPlanner::check_writes(const RuleSubmit& submit, const Kept& kept) {
    for (std::uint32_t a = 0; a < submit.accesses.size(); ++a)
        for (std::uint32_t b = a; b < submit.accesses.size(); ++b) {
            const RuleAccess &x = submit.accesses[a], &y = submit.accesses[b];
            if (x.array == y.array && may_write(x.kind) && may_write(y.kind) && !check_pair(submit, kept, a, b))
                return false;
        }
    return true;
}

/// Of two accesses that write one array, or of the tasks of one. Where formulas say that nothing can be written twice
/// this is O(1).
bool RankPlanner::check_pair(const RuleSubmit& submit, const Kept& kept, std::uint32_t a, std::uint32_t b) {
    const RegionRule &x = kept.regions[a], &y = kept.regions[b];
    const DomainRule& domain = kept.domain;
    if (a == b) {
        const auto keeps_apart = [&](std::size_t axis) {
            if (domain.num_tiles(axis) < 2) return true;
            const auto& axes = submit.accesses[a].axes;
            return std::any_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(x.rank()),
                               [&](const AxisRule& r) { return r.axis == axis && r.keeps_apart(); });
        };
        if (keeps_apart(0) && keeps_apart(1) && keeps_apart(2)) return true;
    } else if (!boxes::overlaps(x.hull(domain), y.hull(domain), x.rank())) {
        return true;
    }
    const auto self = static_cast<std::uint32_t>(&kept - submits_.data());
    for (std::size_t chunk = 0; chunk < domain.num_chunks(); ++chunk) {
        bool is_free = true;
        each_user({self, b, every_chunk}, region_of(kept, a, chunk), [&](std::size_t other, const Box& both) {
            if (a == b && other == chunk) return true;
            return is_free = refuse(RuleRefusal::Reason::conflict, a, b, both);
        });
        if (!is_free) return false;
    }
    return true;
}

/// Whether everything read was written. If even the hull of an access's regions was, O(the array's entries).
bool RankPlanner::check_content(const RuleSubmit& submit, const Kept& kept) {
    for (std::size_t a = 0; a < submit.accesses.size(); ++a) {
        if (submit.accesses[a].kind != AccessKind::read) continue;
        const ArrayHistory& array = arrays_[submit.accesses[a].array];
        const auto open_volume = [&](const Box& box) {
            std::int64_t open = boxes::volume(box);
            array.segments.each_that_meets(
                box, [&](const auto& entry) { open -= boxes::volume(boxes::intersection(entry.box, box)); });
            return open;
        };
        if (open_volume(kept.regions[a].hull(kept.domain)) == 0) continue;
        for (std::size_t chunk = 0; chunk < kept.domain.num_chunks(); ++chunk) {
            const Box region = region_of(kept, a, chunk);
            if (open_volume(region) != 0) return refuse(RuleRefusal::Reason::unwritten, a, a, region);
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------- plan

std::optional<RankPlan> RankPlanner::submit(const RuleSubmit& submit) {
    const std::uint32_t number = keep(submit);
    Kept& kept = submits_[number];
    if (!may_be_submitted(submit, kept)) {
        kept = {};
        free_submits_.push_back(number);
        return std::nullopt;
    }
    RankPlan plan;
    plan.first = kept.first;
    plan.count = numbers_of(kept.domain.num_chunks());
    plan.tasks.reserve(kept.domain.num_chunks_of(first_owner_, end_owner_));
    each_own_task(kept, [&](std::size_t chunk) { plan_task(submit, number, chunk, plan); });
    if (rank_ != every_rank) plan_sends(submit, number, plan);
    std::sort(plan.transfers.begin(), plan.transfers.end());
    plan.transfers.erase(std::unique(plan.transfers.begin(), plan.transfers.end()), plan.transfers.end());
    note(submit, number);
    next_ = kept.last + 1;
    if (num_kept_submits() > most_before_sweep_) drop_unused();
    return plan;
}

std::uint32_t RankPlanner::keep(const RuleSubmit& submit) {
    std::uint32_t number = static_cast<std::uint32_t>(submits_.size());
    if (free_submits_.empty()) {
        submits_.emplace_back();
    } else {
        number = free_submits_.back();
        free_submits_.pop_back();
    }
    Kept& kept = submits_[number];
    const std::size_t count = submit.domain.num_chunks();
    kept.first = next_;
    kept.last = next_ + numbers_of(count) - 1;
    kept.domain = submit.domain;
    for (const RuleAccess& a : submit.accesses)
        kept.regions.emplace_back(arrays_[a.array].rank, arrays_[a.array].box, a.axes);
    return number;
}

void RankPlanner::plan_task(const RuleSubmit& submit, std::uint32_t kept, std::size_t chunk, RankPlan& plan) {
    const Kept& of = submits_[kept];
    const std::size_t owner = of.domain.owner(chunk);
    RankTask& task = plan.tasks.emplace_back();
    task.number = of.first + chunk;
    task.chunk = chunk;
    task.rank = static_cast<RankNumber>(owner / owners_of_rank_);
    task.owner = static_cast<std::uint32_t>(owner % owners_of_rank_);
    task.indices = of.domain.chunk(chunk);
    for (std::uint32_t a = 0; a < submit.accesses.size(); ++a) {
        const Box region = region_of(of, a, chunk);
        if (!boxes::is_empty(region, of.regions[a].rank())) plan_access(submit, {kept, a, chunk}, region, task, plan);
    }
    sort_edges(task.edges);
}

void RankPlanner::plan_access(const RuleSubmit& submit, const Use& of, const Box& region, RankTask& task,
                              RankPlan& plan) {
    const RuleAccess& wanted = submit.accesses[of.access];
    const ArrayHistory& array = arrays_[wanted.array];
    RankAccess& access = task.accesses.emplace_back();
    access.array = wanted.array;
    access.kind = wanted.kind;
    access.region = region;
    const bool needs_content = wanted.kind != AccessKind::overwrite;
    const auto come_after = [&](const Use& use, std::size_t chunk, RankEdge::Kind kind) {
        const Kept& other = submits_[use.submit];
        if (other.first + chunk > forgotten_up_to_)
            task.edges.push_back({other.first + chunk, rank_of(other, chunk), kind});
    };
    array.segments.each_that_meets(region, [&](const auto& entry) {
        const Box part = boxes::intersection(entry.box, region);
        const Uses& uses = array.uses[entry.value];
        each_user(uses.writer, part, [&](std::size_t chunk, const Box& box) {
            come_after(uses.writer, chunk, needs_content ? RankEdge::Kind::data : RankEdge::Kind::order);
            const Kept& writer = submits_[uses.writer.submit];
            if (needs_content) access.sources.push_back({box, writer.first + chunk, rank_of(writer, chunk)});
            return true;
        });
        if (!may_write(wanted.kind)) return;
        for (const Use& reader : uses.readers)
            each_user(reader, part, [&](std::size_t chunk, const Box&) {
                come_after(reader, chunk, RankEdge::Kind::order);
                return true;
            });
    });
    std::sort(access.sources.begin(), access.sources.end(), [](const RankSource& a, const RankSource& b) {
        return a.writer != b.writer ? a.writer < b.writer
                                    : std::lexicographical_compare(a.box.begin, a.box.begin + max_rank, b.box.begin,
                                                                   b.box.begin + max_rank);
    });
    for (const RankSource& s : access.sources)
        if (s.rank != task.rank) plan.transfers.push_back({wanted.array, s.box, s.writer, s.rank, task.rank});
    plan_inside(submit, of, access, task);
}

/// What the tasks of the same submit have to do with each other: none sees what another one writes.
void RankPlanner::plan_inside(const RuleSubmit& submit, const Use& of, RankAccess& access, RankTask& task) {
    const Kept& kept = submits_[of.submit];
    for (std::uint32_t b = 0; b < submit.accesses.size(); ++b) {
        const RuleAccess& other = submit.accesses[b];
        if (other.array != access.array || may_write(other.kind) == may_write(access.kind)) continue;
        each_user({of.submit, b, every_chunk}, access.region, [&](std::size_t chunk, const Box&) {
            access.is_snapshot = !may_write(access.kind);
            if (access.is_snapshot) return false;
            if (chunk != of.chunk)
                task.edges.push_back({kept.first + chunk, rank_of(kept, chunk), RankEdge::Kind::snapshot});
            return true;
        });
    }
}

/// What the rank's own tasks wrote last and tasks of others need.
void RankPlanner::plan_sends(const RuleSubmit& submit, std::uint32_t kept, RankPlan& plan) {
    const Kept& of = submits_[kept];
    for (std::uint32_t a = 0; a < submit.accesses.size(); ++a) {
        const RuleAccess& wanted = submit.accesses[a];
        if (wanted.kind == AccessKind::overwrite) continue;
        const ArrayHistory& array = arrays_[wanted.array];
        const Box hull = of.regions[a].hull(of.domain);
        if (boxes::is_empty(hull, array.rank)) continue;
        array.segments.each_that_meets(hull, [&](const auto& entry) {
            const Use& writer = array.uses[entry.value].writer;
            const TaskNumber first = submits_[writer.submit].first;
            each_own_user(writer, boxes::intersection(entry.box, hull), [&](std::size_t chunk, const Box& written) {
                each_other_user({kept, a, every_chunk}, written, [&](std::size_t reader, const Box& box) {
                    plan.transfers.push_back({wanted.array, box, first + chunk, rank_, rank_of(of, reader)});
                });
            });
        });
    }
}

// ------------------------------------------------------------------------------------------------------- history

void RankPlanner::note(const RuleSubmit& submit, std::uint32_t kept) {
    const Kept& of = submits_[kept];
    const auto each_hull = [&](bool of_writers, auto&& f) {
        for (std::uint32_t a = 0; a < submit.accesses.size(); ++a) {
            if (may_write(submit.accesses[a].kind) != of_writers) continue;
            const Box hull = of.regions[a].hull(of.domain);
            if (!boxes::is_empty(hull, of.regions[a].rank())) f(a, hull);
        }
    };
    // What was written afterwards has no readers yet.
    each_hull(false, [&](std::uint32_t a, const Box& hull) {
        note_read(arrays_[submit.accesses[a].array], {kept, a, every_chunk}, hull);
    });
    each_hull(true, [&](std::uint32_t a, const Box& hull) {
        ArrayHistory& array = arrays_[submit.accesses[a].array];
        if (of.regions[a].fills_hull() && is_box_of_boxes(submit.accesses[a], array.rank, of.domain))
            return note_write(array, {kept, a, every_chunk}, hull);
        for (std::size_t chunk = 0; chunk < of.domain.num_chunks(); ++chunk)
            if (const Box region = region_of(of, a, chunk); !boxes::is_empty(region, array.rank))
                note_write(array, {kept, a, chunk}, region);
    });
}

void RankPlanner::note_read(ArrayHistory& array, const Use& use, const Box& box) {
    array.segments.each_that_meets(box, [&](const auto& entry) {
        std::vector<Use>& readers = array.uses[entry.value].readers;
        if (readers.empty() || readers.back() != use) readers.push_back(use);
    });
}

void RankPlanner::note_write(ArrayHistory& array, const Use& use, const Box& box) {
    std::vector<std::pair<Box, std::uint32_t>> cut;
    array.segments.take(box, [&](auto&& entry) { cut.emplace_back(entry.box, entry.value); });
    for (const auto& [from, at] : cut) {
        const Uses uses = std::exchange(array.uses[at], {});
        array.free_uses.push_back(at);
        boxes::subtract(from, box, [&](const Box& piece) { add_segment(array, piece, uses); });
    }
    add_segment(array, box, {use, {}});
}

void RankPlanner::add_segment(ArrayHistory& array, const Box& box, Uses uses) {
    std::uint32_t at = static_cast<std::uint32_t>(array.uses.size());
    if (array.free_uses.empty()) {
        array.uses.push_back(std::move(uses));
    } else {
        at = array.free_uses.back();
        array.free_uses.pop_back();
        array.uses[at] = std::move(uses);
    }
    array.segments.insert(box, at);
}

void RankPlanner::forget_up_to(TaskNumber number) {
    forgotten_up_to_ = std::max(forgotten_up_to_, number);
    for (ArrayHistory& array : arrays_)
        for (Uses& uses : array.uses)
            uses.readers.erase(
                std::remove_if(uses.readers.begin(), uses.readers.end(),
                               [&](const Use& r) { return submits_[r.submit].last <= forgotten_up_to_; }),
                uses.readers.end());
    drop_unused();
}

/// Submits that no entry names. Since it is done when their number has doubled, it costs each O(its entries).
void RankPlanner::drop_unused() {
    ++sweep_;
    for (const ArrayHistory& array : arrays_)
        array.segments.each([&](const auto& entry) {
            const Uses& uses = array.uses[entry.value];
            submits_[uses.writer.submit].used = sweep_;
            for (const Use& reader : uses.readers) submits_[reader.submit].used = sweep_;
        });
    free_submits_.clear();
    for (std::uint32_t i = 0; i < submits_.size(); ++i) {
        if (submits_[i].used == sweep_) continue;
        submits_[i] = {};
        free_submits_.push_back(i);
    }
    most_before_sweep_ = 2 * num_kept_submits() + 64;
}

}  // namespace kmm::ranks
