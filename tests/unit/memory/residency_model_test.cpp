// Residency against a machine that does what it is told, in any order that the fences allow: random tasks, growth,
// refusals, evictions, reclaims, failed copies and arrays that go, on one host and one or two devices. Tasks read
// chunks, parts of them, and regions across chunks. Few tasks fail without need: where good content was fetched again.
// KMM_TEST_PROGRAMS: how many seeds, 300 at least.
//
// The machine (residency_model.hpp) has memories, lanes on which copies and tasks stand in order, and tasks without a
// position (host tasks, device functions). A step executes the head of any lane whose waits have passed. What a task or
// a copy finds at its source must be what the program's order says; so a wait that is missing, a block that is given to
// somebody else too early, and a newest version that is dropped all show as a wrong value.
#include "residency_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/repeat.hpp"

namespace kmm::residency_model {

Machine::Machine(std::uint64_t seed, std::size_t num_devices, Counts& what_happened)
    : counts_(what_happened),
      dice_(seed),
      copies_fail_(dice_.one_in(2)),
      num_devices_(num_devices),
      memories_(num_devices),
      all_linked_(dice_.one_in(2)),
      has_room_(num_devices > 1 && dice_.one_in(2)),
      gives_sealed_(!has_room_ && dice_.one_in(2)) {
    PerMemory<std::size_t> limits;
    limits.resize_for_devices(num_devices);
    // Where there is little room a task's own chunks lie in each other's way.
    const std::size_t most_more = has_room_ ? 160 : dice_.one_in(2) ? 24 : 3;
    for (const MemoryIndex m : limits.memories())
        limits[m] = (m.is_host() ? 128 + dice_.below(64) : 18 + dice_.below(most_more)) * unit;
    residency_ = std::make_unique<Residency>(*this, limits);
}

// ------------------------------------------------------------------------------------------------------------- arrays

void Machine::make_array() {
    auto array = std::make_unique<Array>();
    const std::size_t chunks = 1 + dice_.below(6);
    const std::size_t bytes = (1 + dice_.below(6)) * unit - (dice_.one_in(3) ? dice_.below(unit) : 0);
    if (dice_.one_in(2))
        make_stack(*array, chunks);
    else
        kmm_test::cut(*array, chunks, bytes, num_devices_);
    for (const Chunk& c : array->chunks) expected_[&c].units.resize(num_units(c));
    arrays_.push_back(std::move(array));
}

/// Of elements that are as large as units; the last chunk may have fewer of them than the others.
void Machine::make_stack(Array& array, std::size_t chunks) {
    array.element_bytes = unit;
    const std::size_t num_elements = has_room_ ? 3 + dice_.below(2) : 2 + dice_.below(3);
    kmm_test::cut(array, chunks, num_elements * unit, num_devices_, (1 + dice_.below(num_elements)) * unit);
    kmm_test::make_stack(array);
}

bool Machine::is_used(const Owner& owner) const {
    const auto is_used_by = [&](const Task& t) {
        return std::any_of(t.uses.begin(), t.uses.end(), [&](const Use& u) { return u.chunk->owner == &owner; });
    };
    const auto is_used_by_waiting = [&](const Waiting& w) { return is_used_by(*w.task); };
    const auto copies = copies_.find(&owner);
    return (copies != copies_.end() && copies->second != 0) ||
           std::any_of(told_later_.begin(), told_later_.end(), is_used_by_waiting) ||
           std::any_of(waiting_.begin(), waiting_.end(), is_used_by_waiting) ||
           std::any_of(issued_.begin(), issued_.end(), [&](const auto& r) { return is_used_by(*r->task); });
}

/// One that no task uses any more.
void Machine::free_array() {
    if (arrays_.size() < 2) return;
    const std::size_t at = dice_.below(arrays_.size());
    Array& array = *arrays_[at];
    if (is_used(array)) return;
    for (const Chunk& c : array.chunks) {
        for (const Expected::Unit& u : expected_[&c].units)
            for (const auto* fences : {&u.writers, &u.readers})
                for (const Fence& f : *fences)
                    if (!lanes_.passed(f)) return;
    }
    residency_->residents().free_chunks(array);
    for (const Chunk& c : array.chunks) expected_.erase(&c);
    gone_.emplace_back(arrays_[at].release());
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Those whose last task has been settled.
void Machine::free_temporaries() {
    for (auto& t : temporaries_) {
        if (is_used(*t)) continue;
        EXPECT_EQ(t->uses_to_come, 0u);
        EXPECT_TRUE(t->chunk.next_uses.empty());
        residency_->residents().free_chunks(*t);
        expected_.erase(&t->chunk);
        gone_.emplace_back(t.release());
    }
    std::erase(temporaries_, nullptr);
}

// -------------------------------------------------------------------------------------------------------------- tasks

/// In the program's order, which is that of the submits.
bool Machine::will_be_written(const Chunk& chunk) const {
    bool was_written = expected_.at(&chunk).was_written();
    for (const Waiting& w : waiting_)
        for (const Use& u : w.task->uses) was_written |= u.chunk == &chunk && u.replaces;
    return was_written;
}

Machine::Waiting Machine::make_task(MemoryIndex memory) {
    auto task = std::make_unique<Task>();
    task->number = ++num_tasks_;
    task->memory = memory;
    return {std::move(task), {}};
}

void Machine::add_use(Waiting& waiting, Chunk& chunk, bool replaces) {
    if (uses(*waiting.task, chunk)) return;
    const bool was_written = will_be_written(chunk);
    Part part{0, num_units(chunk)};
    if (was_written && !replaces && dice_.one_in(2)) {
        part.begin = dice_.below(part.end);
        part.end = part.begin + 1 + dice_.below(part.end - part.begin);
    }
    const bool is_whole = part.end - part.begin == num_units(chunk);
    const bool overwrites = !was_written || replaces || dice_.one_in(4);
    const bool writes = overwrites || dice_.one_in(2);
    Use& use = add_view(*waiting.task, waiting.accesses, chunk, part,
                        !writes      ? AccessKind::read
                        : overwrites ? AccessKind::overwrite
                                     : AccessKind::write);
    use.writes = writes;
    use.replaces = overwrites && is_whole;
    use.needs_content = !use.replaces;
}

/// Of any chunk but those. Often it replaces one of which small parts will be read before.
void Machine::add_random_use(Waiting& waiting, const std::vector<const Chunk*>& without) {
    std::vector<Chunk*> read_in_parts;
    for (const Waiting& w : waiting_)
        for (const Use& u : w.task->uses)
            if (u.is_small_part) read_in_parts.push_back(u.chunk);
    const bool replaces = !read_in_parts.empty() && dice_.one_in(3);
    Array& array = *arrays_[dice_.below(arrays_.size())];
    Chunk& chunk =
        replaces ? *read_in_parts[dice_.below(read_in_parts.size())] : array.chunks[dice_.below(array.chunks.size())];
    if (std::find(without.begin(), without.end(), &chunk) == without.end()) add_use(waiting, chunk, replaces);
}

/// One submit.
void Machine::make_tasks() {
    if (dice_.one_in(2) && make_readers_across()) return;
    Waiting waiting = make_task(dice_.one_in(num_devices_ + 1) ? host : random_device());
    const std::size_t num_uses = 1 + dice_.below(3);
    for (std::size_t i = 0; i < num_uses; ++i) add_random_use(waiting, {});
    told_later_.push_back(std::move(waiting));
}

/// A region that can be read: of neighbouring chunks, mostly with their edges. Of no array: none was found.
Region Machine::random_region() {
    Array& array = *arrays_[dice_.below(arrays_.size())];
    const std::size_t num_pieces = 2 + dice_.below(3);
    if (!array.is_stack || array.chunks.size() < num_pieces) return {};
    const std::size_t first = dice_.below(array.chunks.size() - num_pieces + 1), last = first + num_pieces - 1;
    for (std::size_t i = first; i <= last; ++i)
        if (!will_be_written(array.chunks[i])) return {};
    const std::size_t first_units = num_units(array.chunks[first]);
    const std::size_t last_units = num_units(array.chunks[last]);
    const std::size_t of_first = dice_.one_in(2) ? 1 : 1 + dice_.below(first_units);
    const std::size_t of_last = dice_.one_in(2) ? 1 : 1 + dice_.below(last_units);
    const Region region{&array, static_cast<std::size_t>(array.box(first).end[0]) - of_first,
                        static_cast<std::size_t>(array.box(last).begin[0]) + of_last};
    return region.size() <= most_region_units ? region : Region{};
}

Temporary& Machine::add_temporary(const Region& region) {
    Temporary& made = *temporaries_.emplace_back(make_temporary(region));
    expected_[&made.chunk];  // no units: the program's order knows nothing of it
    return made;
}

/// The device that has the largest piece, or any.
MemoryIndex Machine::home_of(const std::vector<Piece>& pieces) {
    const auto size = [](const Piece& p) { return p.part.end - p.part.begin; };
    const Piece& largest = *std::max_element(pieces.begin(), pieces.end(),
                                             [&](const Piece& a, const Piece& b) { return size(a) < size(b); });
    for (const auto& r : largest.chunk->replicas)
        if (r.memory().is_device() && r.holds_all_of(largest.chunk->version)) return r.memory();
    return random_device();
}

/// Tasks of one submit that read the same region across chunks in one memory, and use other chunks, or the same ones
/// beside the region.
bool Machine::make_readers_across() {
    Region region;
    for (int i = 0; i < 4 && region.array == nullptr; ++i) region = random_region();
    if (region.array == nullptr) return false;
    const std::vector<Piece> pieces = pieces_of(region);
    std::vector<const Chunk*> read;
    for (const Piece& piece : pieces) read.push_back(piece.chunk);
    const MemoryIndex memory = dice_.one_in(2) ? random_device() : home_of(pieces);
    Temporary& temporary = add_temporary(region);
    const std::size_t num_tasks = dice_.one_in(3) ? 2 + dice_.below(2) : 1;
    const bool may_be_in_place = !dice_.one_in(4);
    for (std::size_t i = 0; i < num_tasks; ++i) {
        Waiting waiting = make_task(memory);
        const Region second = dice_.one_in(8) ? random_region() : Region{};
        if (second.array == nullptr) {
            if (dice_.one_in(2)) add_random_use(waiting, read);
            if (dice_.one_in(6)) add_use_beside(waiting, pieces);
        }
        Task& task = *waiting.task;
        residency_model::add_temporary(task, waiting.accesses, temporary);
        if (second.array != nullptr) residency_model::add_temporary(task, waiting.accesses, add_temporary(second));
        // Parts come behind all others.
        const auto behind = static_cast<std::uint32_t>(task.uses.size());
        add_across(task, waiting.accesses, behind - (second.array != nullptr ? 2 : 1), region, may_be_in_place);
        if (second.array != nullptr) add_across(task, waiting.accesses, behind - 1, second, may_be_in_place);
        mark_small_parts(task);
        told_later_.push_back(std::move(waiting));
    }
    return true;
}

/// Writes what one of the region's chunks holds before it, or behind it.
void Machine::add_use_beside(Waiting& waiting, const std::vector<Piece>& pieces) {
    const Piece& piece = pieces[dice_.below(pieces.size())];
    const Part before{0, piece.part.begin}, behind{piece.part.end, num_units(*piece.chunk)};
    const Part part = before.begin != before.end ? before : behind;
    if (part.begin == part.end) return;
    Use& use = add_view(*waiting.task, waiting.accesses, *piece.chunk, part,
                        dice_.one_in(2) ? AccessKind::write : AccessKind::overwrite);
    use.writes = use.needs_content = true;
}

/// Residency learns of the next task.
void Machine::tell_one() {
    if (told_later_.empty()) make_tasks();
    Waiting waiting = std::move(told_later_.front());
    told_later_.pop_front();
    submit(std::move(waiting));
}

/// As Scheduler::submit.
void Machine::submit(Waiting waiting) {
    const Task& task = *waiting.task;
    for (const Use& u : task.uses) {
        if (u.chunk->owner->is_temporary()) --u.chunk->owner->uses_to_come;
        residency_->residents().add_next_use(*u.chunk, kmm::memory::next_use_of(task, u));
        if (u.writes && task.memory.is_device()) u.chunk->array()->written_by[task.memory].add(u.chunk->index);
    }
    for (const Across& across : task.across()) {
        if (!across.may_be_in_place) continue;
        const Chunk& first = *task.part(across, 0).chunk;
        kmm::memory::Neighbours& neighbours = first.array()->neighbours[task.memory];
        neighbours.chunks.add(first.index);
        neighbours.chunks.add(task.part(across, across.num_parts - 1).chunk->index);
    }
    waiting_.push_back(std::move(waiting));
}

bool Machine::conflict(const Task& first, const std::vector<Access>& accesses, const Waiting& second) {
    for (const Access& a : accesses)
        for (const Access& b : second.accesses)
            if (first.uses[a.use].chunk == second.task->uses[b.use].chunk && (a.writes() || b.writes()) &&
                a.part.begin < b.part.end && b.part.begin < a.part.end)
                return true;
    return false;
}

/// What it comes after has a position.
bool Machine::is_ready(const Waiting& waiting) const {
    for (const Waiting& before : waiting_) {
        if (before.task->number >= waiting.task->number) break;
        if (conflict(*before.task, before.accesses, waiting)) return false;
    }
    return std::none_of(pinned_.begin(), pinned_.end(),
                        [&](const auto& r) { return conflict(*r->task, r->accesses, waiting); });
}

/// What it was to write cannot be read: tasks that were to read it are cancelled, as are those that read what these
/// were to write.
void Machine::give_up(Task& task) {
    ++counts_.gave_up;
    // What the rest of its submit needs is known as well.
    while (!told_later_.empty()) tell_one();
    std::set<const Chunk*> poisoned;
    const auto cancel = [&](Task& t) {
        residency_->residents().unplan(t);
        for (const Use& u : t.uses) {
            residency_->residents().remove_next_use(*u.chunk, kmm::memory::next_use_of(t, u));
            if (!u.writes) continue;
            poisoned.insert(u.chunk);
            expected_.at(u.chunk).is_poisoned = true;
        }
    };
    cancel(task);
    std::erase_if(waiting_, [&](const Waiting& w) {
        Task& t = *w.task;
        if (t.number <= task.number) return false;
        for (const Use& u : t.uses)
            if (u.needs_content && poisoned.count(u.chunk) != 0) {
                cancel(t);
                return true;
            }
        for (const Use& u : t.uses) poisoned.erase(u.chunk);  // it replaces it
        return false;
    });
}

/// A task that is ready, in any order.
bool Machine::place(Waiting& waiting) {
    Task& task = *waiting.task;
    // What is known of failures cancels it.
    for (const Access& a : waiting.accesses)
        for (std::size_t k = a.part.begin; k < a.part.end; ++k)
            if (a.kind != AccessKind::overwrite && has_failed(expected_.at(task.uses[a.use].chunk).units[k].writer)) {
                give_up(task);
                return true;
            }
    const std::size_t ghosts = counts_.ghosts;
    switch (residency_->place(task)) {
    case Placement::granted:
        count_forms(task);
        counts_.ghosts_found -= counts_.ghosts - ghosts;
        break;
    case Placement::wait_growth:
    case Placement::wait_pins:
    case Placement::busy_chunk: return false;
    case Placement::full:
    case Placement::lacks:
        // As the schedule does: only when nothing is on its way that may free memory.
        if (!lanes_.empty() || !pinned_.empty() || !growths_.empty()) return false;
        give_up(task);
        return true;
    case Placement::lost:
        EXPECT_TRUE(copies_fail_) << "nothing was lost";
        give_up(task);
        return true;
    case Placement::starved: ADD_FAILURE(); return true;
    }
    for (const Access& a : waiting.accesses)
        for (std::size_t k = a.part.begin; k < a.part.end; ++k) {
            const Expected::Unit& u = expected_.at(task.uses[a.use].chunk).units[k];
            for (const Fence& f : u.writers) task.fences.add(f);
            if (!a.writes()) continue;
            for (const Fence& f : u.readers) task.fences.add(f);
        }
    return true;
}

void Machine::count_forms(const Task& task) {
    counts_.ghosts_found += static_cast<std::size_t>(std::ranges::count(task.uses, Use::Place::ghost, &Use::place));
    for (const Across& across : task.across()) switch (across.form) {
        case Across::Form::gather: ++counts_.gather; break;
        case Across::Form::gathered: ++counts_.gathered; break;
        case Across::Form::in_place: ++counts_.in_place; break;
        }
    EXPECT_EQ(residency_->missing_bytes(task), 0u) << "of a task that has its memory";
    EXPECT_EQ(residency_->moved_bytes(task), 0u);
}

void Machine::issue(Running one) {
    const auto running = std::make_shared<Running>(std::move(one));
    Task& task = *running->task;
    const bool has_position = task.memory.is_device() && !dice_.one_in(4);
    for (const Use& u : task.uses)
        running->chunks_at.push_back(u.place == Use::Place::none ? 0 : reinterpret_cast<std::uintptr_t>(address_of(u)));
    for (const Access& a : running->accesses) {
        const Part part = a.part;
        Expected& e = expected_.at(task.uses[a.use].chunk);
        std::vector<Value>& reads = running->reads.emplace_back();
        for (std::size_t k = part.begin; k < part.end && a.kind != AccessKind::overwrite; ++k) {
            reads.push_back(e.units[k].value);
            running->needed.push_back(e.units[k].writer);
        }
        running->writes.push_back(a.writes() ? ++last_value_ : 0);
        if (!a.writes()) continue;
        if (task.uses[a.use].replaces) e.is_poisoned = false;
        for (std::size_t k = part.begin; k < part.end; ++k) e.units[k] = {last_value_, task.number, {}, {}};
    }
    issued_.push_back(running);
    if (!has_position) {
        residency_->pin(task);
        pinned_.push_back(running);
        return;
    }
    const auto lane = static_cast<LaneId>(8 * task.memory.index() + dice_.below(3));
    const Fence fence = lanes_.put(lane, task.fences, [this, running] { execute(*running); });
    residency_->issued(task, fence);
    note_position(*running, fence);
}

void Machine::note_position(const Running& running, Fence fence) {
    for (const Access& a : running.accesses)
        for (std::size_t k = a.part.begin; k < a.part.end; ++k) {
            Expected::Unit& u = expected_.at(running.task->uses[a.use].chunk).units[k];
            (a.writes() ? u.writers : u.readers).push_back(fence);
        }
}

/// Whether a chunk whose content the task needs has what a failed copy left, in any part.
bool Machine::finds_bad(const Running& running) {
    const Task& task = *running.task;
    for (const Access& a : running.accesses) {
        const Use& u = task.uses[a.use];
        if (!u.needs_content || u.place == Use::Place::none) continue;
        const std::uintptr_t address = running.chunks_at[a.use];
        const Part part = u.place == Use::Place::ghost ? a.part : Part{0, num_units(*u.chunk)};
        const auto found = memories_.range(task.memory, address + part.begin * unit, (part.end - part.begin) * unit);
        if (std::find(found.begin(), found.end(), bad) != found.end()) return true;
    }
    return false;
}

void Machine::execute(const Running& running) {
    const Task& task = *running.task;
    ++counts_.run;
    std::erase_if(issued_, [&](const auto& r) { return r.get() == &running; });
    if (running.has_failed && !finds_bad(running)) ++counts_.needless;
    const bool fails = running.has_failed || std::any_of(running.needed.begin(), running.needed.end(),
                                                         [&](std::uint64_t n) { return has_failed(n); });
    if (fails) {
        ++counts_.failed;
        failed_.insert(task.number);
    }
    for (const Across& across : task.across()) {
        std::vector<Value> region;
        for (std::uint32_t i = 0; i < across.num_parts; ++i) {
            const std::vector<Value>& part = running.reads[task.views.size() + across.first_part + i];
            region.insert(region.end(), part.begin(), part.end());
        }
        const auto view = std::ranges::find(task.views, across.use, &kmm::graph::View::use) - task.views.begin();
        const auto address = reinterpret_cast<std::uintptr_t>(task.addresses[static_cast<std::size_t>(view)]);
        const auto found = memories_.range(task.memory, address, region.size() * unit);
        if (fails) continue;
        EXPECT_EQ(std::vector<Value>(found.begin(), found.end()), region)
            << "task " << task.number << " in memory " << task.memory.index() << " across chunks, in form "
            << static_cast<int>(across.form);
    }
    for (std::size_t i = 0; i < task.views.size(); ++i) {
        const Access& a = running.accesses[i];
        if (task.uses[a.use].role == Use::Role::region) continue;
        const auto address = reinterpret_cast<std::uintptr_t>(task.addresses[i]);
        const auto found = memories_.range(task.memory, address, (a.part.end - a.part.begin) * unit);
        if (!running.reads[i].empty() && !fails) {
            EXPECT_EQ(std::vector<Value>(found.begin(), found.end()), running.reads[i])
                << "task " << task.number << " in memory " << task.memory.index();
        }
        if (running.writes[i] != 0) std::fill(found.begin(), found.end(), fails ? bad : running.writes[i]);
    }
}

/// A host task whose inputs are there runs; a device function has put its work on a lane.
void Machine::end_pinned() {
    if (pinned_.empty()) return;
    const std::size_t at = dice_.below(pinned_.size());
    const auto running = pinned_[at];
    Task& task = *running->task;
    if (task.memory.is_host() && !lanes_.passed(task.fences)) return;
    pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(at));
    if (task.memory.is_host()) {
        execute(*running);
        residency_->unpin(task, nullptr);
        return;
    }
    const auto lane = static_cast<LaneId>(8 * task.memory.index() + 4);
    const Fence fence = lanes_.put(lane, task.fences, [this, running] { execute(*running); });
    residency_->unpin(task, &fence);
    note_position(*running, fence);
}

void Machine::answer_growth() {
    if (growths_.empty()) return;
    const auto [memory, asked] = growths_.front();
    growths_.pop_front();
    if (dice_.one_in(6)) {
        ++counts_.refused;
        residency_->space(memory).grown(0, 0);
        return;
    }
    const std::size_t bytes = (asked + unit - 1) / unit * unit;
    const std::uintptr_t address = memories_.give(memory, bytes);
    given_.push_back({memory, {address, bytes}});
    residency_->space(memory).grown(address, bytes, gives_sealed_ && dice_.one_in(3));
}

/// Others need a device's memory more: what is taken is used by them as soon as its users have passed, and may come
/// back later.
void Machine::reclaim() {
    const MemoryIndex m = random_device();
    std::vector<AddressRange> regions;
    for (const auto& [memory, range] : given_)
        if (memory == m) regions.push_back(range);
    if (regions.empty()) return;
    const auto reclaimed = residency_->blocks().reclaim(m, regions, (1 + dice_.below(16)) * unit, dice_.one_in(2));
    for (const auto& taken : reclaimed.taken) {
        const AddressRange range = regions[taken.region];
        std::erase_if(given_, [&](const auto& g) { return g.first == m && g.second.address == range.address; });
        ++counts_.reclaimed;
        (void)lanes_.put(static_cast<LaneId>(2000 + m.index()), taken.users, [this, m = m, range] {
            for (Value& v : memories_.range(m, range.address, range.bytes)) v = garbage;
            const bool has_room =
                residency_->space(m).counters.capacity_bytes + range.bytes <= residency_->space(m).counters.limit_bytes;
            if (!has_room || residency_->space(m).is_growing() || dice_.one_in(2)) return;
            given_.push_back({m, range});
            residency_->space(m).given_again(range.address, range.bytes, false);
        });
    }
}

/// Of every chunk that was written the newest version is somewhere, unless what comes next replaces it, or only parts
/// of it are read before and these are saved; nothing is above its limit, no two blocks overlap, and what may leave is
/// counted right.
void Machine::check() const {
    for (const MemoryIndex m : residency_->residents().memories()) {
        EXPECT_LE(residency_->space(m).counters.capacity_bytes, residency_->space(m).counters.limit_bytes);
        std::map<std::uintptr_t, std::uintptr_t> blocks;
        std::size_t evictable_bytes = 0;
        residency_->residents().for_each_resident(m, [&](const Chunk& c) {
            const auto begin = c.replicas[m].block();
            EXPECT_TRUE(blocks.emplace(begin, begin + residency_->residents().rounded(c.block_bytes())).second);
            EXPECT_TRUE(residency_->residents().is_victim_in_order(c, m));
            if (!c.replicas[m].pinned()) evictable_bytes += residency_->residents().rounded(c.block_bytes());
        });
        EXPECT_EQ(residency_->residents().evictable_bytes(m), evictable_bytes);
        std::uintptr_t end = 0;
        for (const auto& [begin, block_end] : blocks) {
            EXPECT_GE(begin, end) << "two blocks of memory " << m.index() << " overlap";
            end = block_end;
        }
    }
    for (const auto& array : arrays_)
        for (const Chunk& c : array->chunks) {
            if (c.version == 0 || c.lost != nullptr || expected_.at(&c).is_poisoned) continue;
            bool somewhere = false;
            for (const MemoryIndex m : residency_->residents().memories())
                somewhere |= c.replicas[m].address != 0 && c.replicas[m].holds_all_of(c.version);
            const bool is_replaced = !c.next_uses.empty() && c.next_uses.first().replaces();
            EXPECT_TRUE(somewhere || is_replaced || has_parts_that_are_read(c))
                << "nobody has the newest version of a chunk";
        }
}

/// One of the tasks that are ready.
void Machine::place_one() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < waiting_.size(); ++i)
        if (is_ready(waiting_[i])) ready.push_back(i);
    if (ready.empty()) return;
    const std::size_t at = ready[dice_.below(ready.size())];
    const std::size_t gave_up = counts_.gave_up;
    if (!place(waiting_[at])) return;
    Waiting waiting = std::move(waiting_[at]);  // those before it are where they were
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    if (gave_up == counts_.gave_up) issue({std::move(waiting.task), std::move(waiting.accesses)});
}

void Machine::execute_one() {
    const LaneId lane = lanes_.execute_one(dice_);
    if (lane != LaneId::none) residency_->residents().advanced(lane);
}

void Machine::step() {
    switch (dice_.below(12)) {
    case 0:
        dice_.one_in(4) ? make_array() : free_array();
        free_temporaries();
        break;
    case 1:
    case 2:
        if (waiting_.size() < 12) tell_one();
        break;
    case 3:
    case 4:
    case 5: place_one(); break;
    case 6:
    case 7: end_pinned(); break;
    case 8: answer_growth(); break;
    case 9: dice_.one_in(6) ? reclaim() : plan_waiting(); break;
    default: execute_one(); break;
    }
}

/// Whatever was submitted comes to its end, in so many steps.
void Machine::drain() {
    while (!told_later_.empty()) tell_one();
    for (int i = 0; i < 20'000; ++i) {
        if (waiting_.empty() && pinned_.empty() && lanes_.empty()) return;
        switch (dice_.below(4)) {
        case 0: place_one(); break;
        case 1: end_pinned(); break;
        case 2: answer_growth(); break;
        default: execute_one(); break;
        }
        if (i % 64 == 0) check(), free_temporaries();
    }
    ADD_FAILURE() << "stuck with " << waiting_.size() << " tasks";
}

void Machine::read_all() {
    for (const auto& array : arrays_)
        for (Chunk& c : array->chunks) {
            const bool is_failed = std::any_of(expected_[&c].units.begin(), expected_[&c].units.end(),
                                               [&](const Expected::Unit& u) { return has_failed(u.writer); });
            if (!expected_[&c].was_written() || is_failed || c.lost != nullptr) continue;
            Waiting waiting = make_task(host);
            for (const MemoryIndex m : residency_->residents().memories())
                if (c.replicas[m].address != 0 && c.replicas[m].holds_all_of(c.version)) waiting.task->memory = m;
            add_view(*waiting.task, waiting.accesses, c, {0, num_units(c)}, AccessKind::read).needs_content = true;
            submit(std::move(waiting));
        }
}

void Machine::run(std::size_t steps) {
    for (int i = 0; i < 3; ++i) make_array();
    for (std::size_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
        step();
        check();
    }
    drain();
    free_temporaries();
    EXPECT_TRUE(temporaries_.empty());
    for (const auto& array : arrays_)
        for (const Chunk& c : array->chunks) EXPECT_TRUE(c.next_uses.empty()) << "of a task that is over";
    const std::size_t gave_up = counts_.gave_up;
    read_all();
    drain();
    EXPECT_EQ(counts_.gave_up, gave_up) << "a chunk cannot be read although nothing else runs";
    for (const MemoryIndex m : residency_->residents().memories())
        counts_.evictions += residency_->space(m).counters.evictions;
}

TEST(ResidencyModel, every_task_and_copy_finds_what_the_programs_order_says) {
    Counts counts;
    const char* const count = std::getenv("KMM_TEST_PROGRAMS");
    const auto fewest = static_cast<unsigned long long>(repeat(300, 200));
    const std::uint64_t last_seed = std::max(fewest, count != nullptr ? std::strtoull(count, nullptr, 10) : 0);
    for (std::uint64_t seed = 1; seed <= last_seed && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Machine machine(seed, 1 + seed % 2, counts);
        machine.run(1500);
    }
    EXPECT_LT(counts.needless, counts.failed / 20) << "tasks that found nothing of a failed copy";
    // It was not for want of anything to do.
    const auto was_often = [](const char* name, std::size_t times, std::size_t least) {
        EXPECT_GT(times, least) << name;
        RecordProperty(name, static_cast<int>(times));
    };
    was_often("tasks", counts.run, 10'000);
    was_often("evictions", counts.evictions, 3'000);
    was_often("planned", counts.planned, 3'000);
    was_often("reclaimed", counts.reclaimed, 100);
    was_often("refused", counts.refused, 100);
    was_often("gave_up", counts.gave_up, 10);
    was_often("copies_failed", counts.copies_failed, 100);
    was_often("tasks_failed", counts.failed, 100);
    was_often("gather", counts.gather, 1'000);
    was_often("gathered", counts.gathered, 300);
    was_often("in_place", counts.in_place, 200);
    was_often("moves", counts.moves, 50);
    was_often("gathers", counts.gathers, 1'000);
    was_often("gathers_failed", counts.gathers_failed, 20);
    was_often("parts", counts.parts, 100);
    was_often("parts_failed", counts.parts_failed, 1);
    was_often("ghosts", counts.ghosts, 40);
    was_often("ghosts_found", counts.ghosts_found, 10);
    was_often("ghosts_failed", counts.ghosts_failed, 3);
    was_often("from_parts", counts.from_parts, 100);
    RecordProperty("failed_needlessly", static_cast<int>(counts.needless));
}

}  // namespace kmm::residency_model
