// Records by number, of which few may exist: each is made when it is touched first.
//
// Owns: PagedRecords. Must not know: what the records are of. One thread at a time touches; any thread looks.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>

namespace kmm::graph {

/// A sparse array of records, numbered from 0. `touch` makes a record. Records lie in pages of 64, found through a
/// directory of two levels; pages and directory are made on first touch, so that untouched records cost nothing, and a
/// lookup is O(1) for any size. A record keeps its address as long as this object lives.
///
/// Calls of `touch` must be serialised. All other calls may run on any thread meanwhile: a record that is found is
/// fully constructed.
template<typename T> class PagedRecords {
  public:
    static constexpr std::size_t page_size = 64;

    explicit PagedRecords(std::size_t count = 0) noexcept : count_(count) {}
    ~PagedRecords() {
        delete_page(0, first_.load());
        Branch* const branches = branches_.load();
        for (std::size_t b = 0; branches != nullptr && b < num_branches(); ++b) {
            Pages* const pages = branches[b].load();
            for (std::size_t p = 0; pages != nullptr && p < branch_size; ++p)
                delete_page(b * branch_size + p, pages->at[p].load());
            delete pages;
        }
        delete[] branches;
    }
    PagedRecords(const PagedRecords&) = delete;
    PagedRecords& operator=(const PagedRecords&) = delete;

    /// How many records there may be.
    std::size_t size() const noexcept { return count_; }
    /// Only before the first `touch`.
    void set_size(std::size_t count) noexcept { count_ = count; }

    /// Null if the record does not exist. O(1).
    T* find(std::size_t i) noexcept { return find_in(find_page(i / page_size), i % page_size); }
    const T* find(std::size_t i) const noexcept { return find_in(find_page(i / page_size), i % page_size); }
    /// The record must exist. O(1).
    T& operator[](std::size_t i) noexcept { return *find_page(i / page_size)->record(i % page_size); }
    const T& operator[](std::size_t i) const noexcept { return *find_page(i / page_size)->record(i % page_size); }
    /// The record, made from `make()` if it does not exist. O(1). Throws std::bad_alloc and what `make` throws; then
    /// the record still does not exist.
    template<typename Make> T& touch(std::size_t i, Make&& make) {
        if (T* const record = find(i); record != nullptr) [[likely]]
            return *record;
        return make_record(i, make);
    }

    /// Iterates over the existing records, in the order of their numbers. O(pages).
    template<typename Records, typename Record> class Walk {
      public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        using pointer = Record*;
        using reference = Record&;

        Walk() = default;
        Walk(Records* records, std::size_t at) noexcept : records_(records), at_(at) {}
        Record& operator*() const noexcept { return (*records_)[at_]; }
        Record* operator->() const noexcept { return &(*records_)[at_]; }
        Walk& operator++() noexcept {
            at_ = records_->next(at_ + 1);
            return *this;
        }
        Walk operator++(int) noexcept {
            const Walk before = *this;
            ++*this;
            return before;
        }
        friend bool operator==(const Walk&, const Walk&) = default;

      private:
        Records* records_ = nullptr;
        std::size_t at_ = 0;
    };
    using Iterator = Walk<PagedRecords, T>;
    using ConstIterator = Walk<const PagedRecords, const T>;
    Iterator begin() noexcept { return {this, next(0)}; }
    Iterator end() noexcept { return {this, count_}; }
    ConstIterator begin() const noexcept { return {this, next(0)}; }
    ConstIterator end() const noexcept { return {this, count_}; }

  private:
    /// `made` is read by every touch and seldom written: it has a cache line apart from the records, which other
    /// threads write at any time.
    struct Page {
        std::atomic<std::uint64_t> made{0};  ///< which records exist, by bits
        std::byte apart[64 - sizeof(std::uint64_t)];

        T* record(std::size_t i) noexcept { return reinterpret_cast<T*>(this + 1) + i; }
        bool has(std::size_t i) const noexcept { return (made.load(std::memory_order_acquire) >> i & 1) != 0; }
    };
    static_assert(sizeof(Page) == 64 && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

    static constexpr std::size_t branch_size = 512;
    struct Pages {
        std::atomic<Page*> at[branch_size] = {};
    };
    using Branch = std::atomic<Pages*>;

    std::size_t num_pages() const noexcept { return (count_ + page_size - 1) / page_size; }
    std::size_t num_branches() const noexcept { return (num_pages() + branch_size - 1) / branch_size; }
    std::size_t size_of_page(std::size_t page) const noexcept { return std::min(page_size, count_ - page * page_size); }
    static T* find_in(Page* page, std::size_t i) noexcept {
        return page != nullptr && page->has(i) ? page->record(i) : nullptr;
    }
    /// The first page stands beside the directory: most arrays have no other.
    Page* find_page(std::size_t page) const noexcept {
        if (page == 0) [[likely]]
            return first_.load(std::memory_order_acquire);
        const Branch* const branches = branches_.load(std::memory_order_acquire);
        if (branches == nullptr) return nullptr;
        const Pages* const pages = branches[page / branch_size].load(std::memory_order_acquire);
        return pages == nullptr ? nullptr : pages->at[page % branch_size].load(std::memory_order_acquire);
    }
    /// The number of the first existing record from `i` on, else the size.
    std::size_t next(std::size_t i) const noexcept {
        while (i < count_) {
            const Page* const page = find_page(i / page_size);
            const std::uint64_t made =
                page == nullptr ? 0 : page->made.load(std::memory_order_acquire) >> i % page_size;
            if (made != 0) return i + static_cast<std::size_t>(std::countr_zero(made));
            const bool has_pages = i < page_size || has_branch(i / page_size);
            const std::size_t step = has_pages ? page_size : page_size * branch_size;
            i = (i / step + 1) * step;
        }
        return count_;
    }
    bool has_branch(std::size_t page) const noexcept {
        const Branch* const branches = branches_.load(std::memory_order_acquire);
        return branches != nullptr && branches[page / branch_size].load(std::memory_order_acquire) != nullptr;
    }

    template<typename Make> [[gnu::noinline]] T& make_record(std::size_t i, Make& make) {
        Page& page = make_page(i / page_size);
        T* const record = new (static_cast<void*>(page.record(i % page_size))) T(make());
        page.made.store(page.made.load(std::memory_order_relaxed) | std::uint64_t{1} << i % page_size,
                        std::memory_order_release);
        return *record;
    }
    Page& make_page(std::size_t page) {
        std::atomic<Page*>& place = page == 0 ? first_ : make_pages(page / branch_size).at[page % branch_size];
        if (Page* const there = place.load(std::memory_order_relaxed); there != nullptr) return *there;
        Page* const fresh = new (::operator new(sizeof(Page) + size_of_page(page) * sizeof(T))) Page;
        place.store(fresh, std::memory_order_release);
        return *fresh;
    }
    Pages& make_pages(std::size_t branch) {
        Branch* branches = branches_.load(std::memory_order_relaxed);
        if (branches == nullptr) {
            branches = new Branch[num_branches()]();
            branches_.store(branches, std::memory_order_release);
        }
        if (Pages* const there = branches[branch].load(std::memory_order_relaxed); there != nullptr) return *there;
        auto* const fresh = new Pages;
        branches[branch].store(fresh, std::memory_order_release);
        return *fresh;
    }
    void delete_page(std::size_t page, Page* there) noexcept {
        if (there == nullptr) return;
        for (std::uint64_t made = there->made.load(); made != 0; made &= made - 1)
            std::destroy_at(there->record(static_cast<std::size_t>(std::countr_zero(made))));
        std::destroy_at(there);
        ::operator delete(static_cast<void*>(there), sizeof(Page) + size_of_page(page) * sizeof(T));
    }

    std::size_t count_;
    std::atomic<Page*> first_{nullptr};
    std::atomic<Branch*> branches_{nullptr};  ///< for each 512 pages
};

}  // namespace kmm::graph
