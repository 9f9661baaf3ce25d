// A slab allocator for many short-lived records of one kind: O(1) each, and a slab is freed with its last record.
//
// Owns: the slabs. Must not know: what the records are of. Guarded by the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kmm::memory {

/// Slabs from the system alone, for records of which there may be as many as chunks: `take` may throw. Aligned to a
/// cache line.
struct SystemMemory {
    static void* allocate(std::size_t bytes) { return ::operator new(bytes, std::align_val_t(line)); }
    static void release(void* memory, std::size_t bytes) noexcept {
        ::operator delete(memory, bytes, std::align_val_t(line));
    }
    static constexpr std::size_t line = 64;
};

/// T has `std::uint16_t place_in_slab`, reserved for the slab; `static T*& free_link(T&)`, a pointer that a free record
/// does not use otherwise; and `void recycle() noexcept`, which makes it as new (it may keep memory of its own).
/// Source: `allocate`, which throws std::bad_alloc, and `release`, as in graph::HostReserve.
template<typename T, typename Source, std::size_t slab_bytes>
class RecordSlabs {
  public:
    RecordSlabs() = default;
    RecordSlabs(const RecordSlabs&) = delete;
    RecordSlabs& operator=(const RecordSlabs&) = delete;
    ~RecordSlabs() {
        drop_all(first_);
        drop_all(empty_);
    }
    /// A record as new. Throws std::bad_alloc, with nothing done; never after `reserve`. O(1).
    T& take() {
        Slab* slab = first_;
        if (slab == nullptr || slab->num_used == per_slab) slab = begin_slab();
        T* record = slab->free;
        if (record != nullptr) {
            slab->free = T::free_link(*record);
            T::free_link(*record) = nullptr;
        } else {
            record = new (slab->address(slab->num_made)) T;
            record->place_in_slab = static_cast<std::uint16_t>(slab->num_made++);
        }
        ++num_used_;
        if (++slab->num_used == per_slab && slab != last_) {
            unlink(*slab);
            link_last(*slab);
        }
        return *record;
    }
    /// Needs no memory. O(1), but O(records of a slab) when a slab is freed.
    void give(T& record) noexcept {
        Slab& slab = slab_of(record);
        record.recycle();
        T::free_link(record) = slab.free;
        slab.free = &record;
        --num_used_;
        if (slab.num_used-- == per_slab && &slab != first_) {
            unlink(slab);
            link_first(slab);
        }
        if (slab.num_used != 0) return;
        // One empty slab is kept, so that single records do not allocate and free slabs.
        unlink(slab);
        if (empty_ == nullptr)
            empty_ = &slab;
        else
            drop(&slab);
    }
    /// The next `count` calls of `take` cannot throw. Throws std::bad_alloc.
    void reserve(std::size_t count) {
        while (num_slabs_ * per_slab - num_used_ < count) {
            Slab* const slab = make_slab();
            slab->next = empty_;
            empty_ = slab;
        }
    }
    /// Frees the slabs without a used record. O(records of these).
    void trim() noexcept {
        drop_all(empty_);
        empty_ = nullptr;
    }
    std::size_t num_used() const noexcept { return num_used_; }
    /// Memory of all records, used and free.
    std::size_t size_bytes() const noexcept { return num_slabs_ * slab_bytes; }
    /// Calls `f(record)` for each used record, and for some free ones. `f` may not take or give any. O(records).
    template<typename F>
    void for_each_made(F&& f) const {
        for (Slab* slab = first_; slab != nullptr; slab = slab->next)
            for (std::uint32_t i = 0; i < slab->num_made; ++i) f(slab->record(i));
    }

  private:
    struct Slab {
        Slab* next = nullptr;
        Slab* previous = nullptr;
        T* free = nullptr;  ///< free list of constructed records
        std::uint32_t num_made = 0;
        std::uint32_t num_used = 0;

        void* address(std::uint32_t i) noexcept {
            return reinterpret_cast<std::byte*>(this) + header_bytes + i * sizeof(T);
        }
        T& record(std::uint32_t i) noexcept { return *std::launder(reinterpret_cast<T*>(address(i))); }
    };
    static constexpr std::size_t header_bytes = 64;
    static constexpr std::size_t per_slab = (slab_bytes - header_bytes) / sizeof(T);
    static_assert(sizeof(Slab) <= header_bytes && per_slab > 1 && per_slab <= 0xffff);

    static Slab& slab_of(T& record) noexcept {
        auto* const first = reinterpret_cast<std::byte*>(&record) - record.place_in_slab * sizeof(T);
        return *std::launder(reinterpret_cast<Slab*>(first - header_bytes));
    }
    Slab* make_slab() {
        auto* const slab = new (Source::allocate(slab_bytes)) Slab;
        ++num_slabs_;
        return slab;
    }
    Slab* begin_slab() {
        Slab* const slab = empty_ != nullptr ? empty_ : make_slab();
        if (slab == empty_) empty_ = slab->next;
        link_first(*slab);
        return slab;
    }
    void drop(Slab* slab) noexcept {
        for (std::uint32_t i = 0; i < slab->num_made; ++i) std::destroy_at(&slab->record(i));
        std::destroy_at(slab);
        Source::release(slab, slab_bytes);
        --num_slabs_;
    }
    void drop_all(Slab* first) noexcept {
        for (Slab* slab = first; slab != nullptr;) {
            Slab* const next = slab->next;
            drop(slab);
            slab = next;
        }
    }
    void link_first(Slab& slab) noexcept {
        slab.previous = nullptr;
        slab.next = first_;
        (first_ != nullptr ? first_->previous : last_) = &slab;
        first_ = &slab;
    }
    void link_last(Slab& slab) noexcept {
        slab.next = nullptr;
        slab.previous = last_;
        (last_ != nullptr ? last_->next : first_) = &slab;
        last_ = &slab;
    }
    void unlink(Slab& slab) noexcept {
        (slab.previous != nullptr ? slab.previous->next : first_) = slab.next;
        (slab.next != nullptr ? slab.next->previous : last_) = slab.previous;
        slab.next = slab.previous = nullptr;
    }

    // Slabs with used records, those with room in front.
    Slab* first_ = nullptr;
    Slab* last_ = nullptr;
    Slab* empty_ = nullptr;  ///< slabs without used records
    std::size_t num_slabs_ = 0;
    std::size_t num_used_ = 0;
};

}  // namespace kmm::memory
