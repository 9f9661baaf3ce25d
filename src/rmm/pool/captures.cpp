// Implements captures.hpp.
#include "rmm/pool/captures.hpp"

#include <algorithm>
#include <utility>

#include "rmm/pool/growth.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::handle_of;

// Ended captures of all pools: a pool checks its own captures only when this has changed.
std::atomic<std::uint64_t> num_ended{0};

void end_capture(void* user) {
    auto* const state = static_cast<std::shared_ptr<capture_state>*>(user);
    (*state)->ended.store(true, std::memory_order_release);
    num_ended.fetch_add(1, std::memory_order_release);
    delete state;
}

// A capture takes memory from the pool in pieces of this at least, so that its small blocks lie together.
constexpr std::size_t min_chunk_bytes = std::size_t{2} << 20;

}  // namespace

/// Of the stream's capture, which has called for the first time. Null where the driver refuses. Lets the lock go.
capture_heap* captures::begin(lock& held, cuda_stream_view stream, std::uint64_t id, refusal* why) {
    auto made = std::make_unique<capture_heap>(id);
    auto* const user = new std::shared_ptr<capture_state>(made->state);
    driver::Status status;
    {
        const unlocked without(held);
        status = pool_.facts.driver.keep_with_capture(handle_of(stream), &end_capture, user);
        if (!status.ok()) (void)pool_.facts.driver.take_last_error();
    }
    if (!status.ok()) {
        delete user;
        why->why = refusal::cause::driver;
        why->status = status;
        return nullptr;
    }
    // Another stream of the capture may have come meanwhile: then there are two heaps, which does no harm.
    capture_heap* const c = heaps_.emplace_back(std::move(made)).get();
    num_heaps_.store(heaps_.size(), std::memory_order_relaxed);
    return c;
}

void* captures::allocate(std::size_t size, cuda_stream_view stream, std::uint64_t id, refusal* why) {
    note_capture();
    lock held(pool_.mutex);
    pool_.fences.note_ended_recordings();
    release_ended();
    capture_heap* c = find(id);
    if (c == nullptr) c = begin(held, stream, id, why);
    if (c == nullptr) return nullptr;

    const cudaStream_t handle = normalized(stream);
    heap::block block;
    if (const auto known = c->free_on.find(handle); known != c->free_on.end()) block = known->second.try_allocate(size);
    ++c->num_live;  // holds the capture's heap while the lock is let go
    try {
        if (!block) block = take_chunk(held, *c, size, handle, why);
        if (block) expect_parts(*c);
        if (block)
            pool_.large.insert(block.address,
                               {block.size_bytes, c->area_at(block.address), rmm::detail::tag_of_thread, c, handle});
    } catch (...) {
        --c->num_live;
        if (block) c->free_on.at(handle).free(block.address, block.size_bytes, {});
        throw;
    }
    if (!block) {
        --c->num_live;
        return nullptr;
    }
    return reinterpret_cast<void*>(block.address);
}

/// Gives the capture's stream more memory of the pool, and a block of it. Lets the lock go.
heap::block captures::take_chunk(lock& held, capture_heap& c, std::size_t size, cudaStream_t handle, refusal* why) {
    // Whole blocks where all have one size: what lies behind the chunk would begin between two of them otherwise.
    const std::size_t block_bytes =
        pool_.facts.options.block_bytes != 0 ? pool_.facts.options.block_bytes : pool_facts::unit;
    const std::size_t min_bytes = (min_chunk_bytes + block_bytes - 1) / block_bytes * block_bytes;
    piece chunk;
    for (const std::size_t wanted : {std::max(size, min_bytes), size})
        if (chunk = find_idle(held, wanted); chunk) break;
    if (!chunk) chunk = grow_idle(held, size, why);
    if (!chunk) return {};
    if (c.released) {
        pool_.put_back(chunk);
        why->why = refusal::cause::driver;
        why->status = {driver::Code::capture_error, 0};
        return {};
    }
    try {
        heap::heap& free = c.free_on.try_emplace(handle, pool_facts::unit).first->second;
        c.chunks[chunk.address] = {chunk.address, chunk.size_bytes, chunk.area};
        // So that nothing fails from here on: the region could not be taken out again.
        free.expect_frees(1);
        try {
            free.add_region(chunk.address, chunk.size_bytes, heap::border::sealed);
        } catch (...) {
            free.expect_fewer_frees(1);
            throw;
        }
        free.expect_fewer_frees(1);
        c.held_bytes += chunk.size_bytes;
        ++c.expected[chunk.area];
        return free.try_allocate(size);
    } catch (...) {
        c.chunks.erase(chunk.address);
        pool_.put_back(chunk);
        throw;
    }
}

/// Reserves host memory for all frees of the capture's memory, during and after the capture. Throws std::bad_alloc.
void captures::expect_parts(capture_heap& c) {
    c.freed_elsewhere.reserve(c.freed_elsewhere.size() + c.num_live);
    // A part may lie in either area: each is ready for all.
    const std::size_t wanted = c.num_parts();
    for (std::size_t area = 0; area < pool_facts::num_areas; ++area) {
        if (area != 0 && !pool_.facts.traits.is_virtual) continue;
        if (c.expected[area] >= wanted) continue;
        pool_.heap[area].expect_frees(wanted - c.expected[area]);
        c.expected[area] = wanted;
    }
}

/// Gives a part of the capture's memory to the heap.
void captures::give_part(capture_heap& c, std::uint8_t area, std::uintptr_t address, std::size_t size,
                         heap::fence_set fences) noexcept {
    if (c.expected[area] > 0)
        --c.expected[area];
    else
        rmm::detail::report_misuse("more parts of a capture's memory came back than were handed out");
    pool_.heap.give_or_lose(area, address, size, std::move(fences));
}

/// Memory that no stream uses any more. Polls events, then collects the unused memory of all arenas; does not wait.
piece captures::find_idle(lock& held, std::size_t size) {
    const auto idle = [&]() KMM_REQUIRES(in_engine) { return pool_.heap.take_ready(size, heap::heap::no_timeline); };
    if (piece found = idle()) return found;
    if (pool_.heap.has_more_to_clear() || pool_.streams.num_recorded() > 0) pool_.fences.poll(held);
    pool_.collect(pool_.facts.has_stocks);
    if (piece found = idle()) return found;
    pool_.collect(true);
    return idle();
}

/// What other streams use still, waited for by the host; else fresh memory.
piece captures::grow_idle(lock& held, std::size_t size, refusal* why) {
    refusal ignored;
    if (piece found = idle_or_nothing(held, pool_.heap.take(size, heap::heap::no_timeline), &ignored)) return found;
    return idle_or_nothing(held, growth_.grow_idle(held, size, why), why);
}

/// The piece after the host has waited for its users; nothing, and it is put back, if these cannot be waited for.
piece captures::idle_or_nothing(lock& held, piece taken, refusal* why) {
    if (!taken || taken.fences.empty()) return taken;
    bool out_of_reach = false;
    if (pool_.fences.wait_on_host(held, taken.fences, timelines::reach::streams, &out_of_reach).ok() && !out_of_reach) {
        taken.fences.clear();
        return taken;
    }
    pool_.put_back(std::move(taken));
    why->why = refusal::cause::exhausted;
    why->reason = "what is free is used by streams that cannot be waited for during a capture";
    return {};
}

capture_heap* captures::find(std::uint64_t id) noexcept {
    for (const auto& c : heaps_)
        if (c->id == id && !c->released) return c.get();
    return nullptr;
}

/// True if the block belongs to a capture, and was taken back.
bool captures::free(std::uintptr_t address, std::size_t bytes, std::span<const cuda_stream_view> streams) {
    {
        const lock held(pool_.mutex);
        const large_block* const block = pool_.large.find(address);
        if (block == nullptr || block->capture == nullptr) return false;
    }
    const std::uint64_t id = streams.size() == 1 ? capture_of(pool_.facts.driver, streams.front()) : 0;
    heap::fence_set fences;
    if (id == 0) {
        for (cuda_stream_view stream : streams) {
            arena* recorder = nullptr;
            fences.add(pool_.arenas.fence_now(stream, pool_.facts.size_of(bytes), &recorder));
            pool_.arenas.record_if_due(*recorder, stream);
        }
    }
    std::size_t true_size = 0;
    {
        const lock held(pool_.mutex);
        if (const auto block = pool_.large.take(address)) {
            capture_heap& c = *block->capture;
            true_size = block->size_bytes;
            --c.num_live;
            if (c.released)
                give_part(c, block->area, address, true_size, std::move(fences));
            else if (id == c.id && normalized(streams.front()) == block->stream)
                c.free_on.at(block->stream).free(address, true_size, {});
            else
                c.freed_elsewhere.push_back({address, true_size, std::move(fences)});
            release_ended();
        }
    }
    if (true_size != pool_.facts.size_of(bytes)) pool_.report_size(address, bytes, true_size);
    return true;
}

/// Under the lock. O(1) where no capture has ended, else O(captures + what is free in the ended ones).
void captures::release_ended() {
    const std::uint64_t ended = num_ended.load(std::memory_order_acquire);
    if (heaps_.empty()) return;
    const bool news = ended != ended_seen_;
    ended_seen_ = ended;
    for (const auto& c : heaps_) {
        if (!news || c->released || !c->state->ended.load(std::memory_order_acquire)) continue;
        for (auto& [stream, free] : c->free_on)
            free.for_each_free([&](std::uintptr_t address, std::size_t size, const heap::fence_set&) {
                expect_in_engine();
                give_part(*c, c->area_at(address), address, size, {});
            });
        for (heap::block& b : c->freed_elsewhere)
            give_part(*c, c->area_at(b.address), b.address, b.size_bytes, std::move(b.fences));
        c->free_on.clear();
        c->freed_elsewhere.clear();
        c->held_bytes = 0;
        c->released = true;
    }
    std::erase_if(heaps_, [this](const auto& c) KMM_REQUIRES(in_engine) {
        if (!c->released || c->num_live != 0) return false;
        for (std::size_t area = 0; area < pool_facts::num_areas; ++area)
            pool_.heap[area].expect_fewer_frees(c->expected[area]);
        return true;
    });
    num_heaps_.store(heaps_.size(), std::memory_order_relaxed);
}

captures::sums captures::figures() const noexcept {
    sums all;
    for (const auto& c : heaps_) {
        all.held_bytes += c->held_bytes;
        for (const auto& [stream, free] : c->free_on) all.free_bytes += free.free_bytes();
        for (const heap::block& b : c->freed_elsewhere) all.free_bytes += b.size_bytes;
    }
    return all;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
