#include "kmm/trace/collector.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

namespace kmm::trace {

namespace {

// Large enough that the lock between those who tell and the thread is rare, small enough to stay in a cache.
constexpr std::size_t entries_in_batch = 4096;
constexpr std::size_t most_full_batches = 128;
// As many are used again; a program that tells much now and then keeps no more.
constexpr std::size_t most_empty_batches = 8;
// A program that is killed loses what it did since.
constexpr std::chrono::milliseconds behind_at_most{500};

std::uint32_t number_of_this_thread() noexcept {
    static std::atomic<std::uint32_t> next{1};
    thread_local const std::uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
}

}  // namespace

void Collector::Batch::clear() noexcept {
    entries.clear();
    fences.clear();
    tasks.clear();
    arrays.clear();
}

Collector::~Collector() {
    emitter_.listen(nullptr);
    if (!thread_.joinable()) return;
    {
        Lock lock(mutex_);
        try {
            flush(lock);
        } catch (const std::bad_alloc&) {
            const locks::Guard filling(filling_lock_);
            lost_ += filling_.entries.size();
        }
        stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
    for (const Listener& l : consumers_) l.consumer->finish(num_lost() - l.lost_before);
}

void Collector::add(std::unique_ptr<Consumer> consumer) {
    {
        Lock lock(mutex_);
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        flush(lock);  // what was told before is not for it
        has_consumers_ = true;
    }
    wake_.notify_one();
    const locks::Guard guard(consumers_mutex_);
    consumers_.push_back({std::move(consumer), num_lost()});
    emitter_.listen(this);
}

void Collector::remove(const Consumer* consumer) {
    {
        Lock lock(mutex_);
        flush(lock);
    }
    Listener leaving;
    {
        const locks::Guard guard(consumers_mutex_);
        const auto at = std::find_if(consumers_.begin(), consumers_.end(),
                                     [&](const Listener& l) { return l.consumer.get() == consumer; });
        if (at == consumers_.end()) return;
        leaving = std::move(*at);
        consumers_.erase(at);
        if (consumers_.empty()) {
            emitter_.listen(nullptr);
            const Lock lock(mutex_);
            has_consumers_ = false;
        }
    }
    leaving.consumer->finish(num_lost() - leaving.lost_before);
}

std::uint64_t Collector::num_lost() noexcept {
    const locks::Guard guard(filling_lock_);
    return lost_;
}

// ---------------------------------------------------------------------------------------------------------- telling

template<typename Fill>
void Collector::append(Fill&& fill) noexcept {
    const std::uint32_t thread = number_of_this_thread();
    bool is_full = false;
    {
        const locks::Guard guard(filling_lock_);
        const std::size_t num_entries = filling_.entries.size();
        try {
            Entry& entry = filling_.entries.emplace_back();
            entry.thread = thread;
            entry.time_ns = clock_ns();  // under the lock, so that times do not go back
            fill(filling_, entry);
        } catch (const std::bad_alloc&) {
            filling_.entries.resize(num_entries);
            ++lost_;
        }
        is_full = filling_.entries.size() >= entries_in_batch;
    }
    if (!is_full) return;
    try {
        Lock lock(mutex_);
        consumed_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return num_full_ - num_consumed_ < most_full_batches; });
        hand_over();
    } catch (const std::exception&) {
        // It stays where it is, and grows, until there is memory for the list.
    }
}

void Collector::lost(std::uint64_t count) noexcept {
    const locks::Guard guard(filling_lock_);
    lost_ += count;
}

void Collector::bound(const Array& array) noexcept {
    append([&](Batch& batch, Entry& entry) {
        entry.kind = Kind::array;
        entry.first = static_cast<std::uint32_t>(batch.arrays.size());
        batch.arrays.push_back(array);
    });
}

void Collector::named(Number array, const std::string& name) noexcept {
    append([&](Batch& batch, Entry& entry) {
        entry.kind = Kind::name;
        entry.first = static_cast<std::uint32_t>(batch.arrays.size());
        Array& told = batch.arrays.emplace_back();
        told.number = array;
        told.name = name;
    });
}

void Collector::submitted(Task&& task) noexcept {
    append([&](Batch& batch, Entry& entry) {
        entry.kind = Kind::task;
        entry.first = static_cast<std::uint32_t>(batch.tasks.size());
        batch.tasks.push_back(std::move(task));
    });
}

void Collector::note(const Event& event, const FenceSet* fences) noexcept {
    append([&](Batch& batch, Entry& entry) {
        entry.event = event;
        if (fences == nullptr || fences->empty()) return;
        entry.first = static_cast<std::uint32_t>(batch.fences.size());
        entry.num_fences = static_cast<std::uint32_t>(fences->size());
        batch.fences.insert(batch.fences.end(), fences->begin(), fences->end());
    });
}

/// What there is goes to the thread.
void Collector::hand_over() {
    full_.reserve(full_.size() + 1);
    Batch fresh;
    if (!empty_.empty()) {
        fresh = std::move(empty_.back());
        empty_.pop_back();
    }
    fresh.entries.reserve(entries_in_batch);
    {
        const locks::Guard guard(filling_lock_);
        if (filling_.entries.empty()) return;
        std::swap(filling_, fresh);
    }
    full_.push_back(std::move(fresh));
    ++num_full_;
    wake_.notify_one();
}

/// Returns when all that was told before has been consumed.
void Collector::flush(Lock& lock) {
    hand_over();
    const std::uint64_t last = num_full_;
    consumed_.wait(lock, [&]() KMM_REQUIRES(mutex_) { return num_consumed_ >= last; });
}

// -------------------------------------------------------------------------------------------------------- consuming

void Collector::run() noexcept {
    Lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return stop_ || !full_.empty() || has_consumers_; });
        const bool is_woken =
            wake_.wait_for(lock, behind_at_most, [this]() KMM_REQUIRES(mutex_) { return stop_ || !full_.empty(); });
        try {
            if (!is_woken) hand_over();
        } catch (const std::bad_alloc&) {
            continue;  // it stays where it is
        }
        if (stop_ && full_.empty()) return;
        if (full_.empty()) continue;
        std::vector<Batch> batches;
        batches.swap(full_);
        lock.unlock();
        for (Batch& batch : batches) {
            consume(batch);
            batch.clear();
        }
        lock.lock();
        num_consumed_ += batches.size();
        for (Batch& batch : batches) {
            try {
                if (empty_.size() < most_empty_batches) empty_.push_back(std::move(batch));
            } catch (const std::bad_alloc&) {
                break;
            }
        }
        consumed_.notify_all();
    }
}

void Collector::consume(const Batch& batch) noexcept {
    const locks::Guard guard(consumers_mutex_);
    for (const Entry& e : batch.entries) {
        for (const auto& [consumer, lost_before] : consumers_) {
            switch (e.kind) {
            case Kind::event:
                consumer->note(e.event, batch.fences.data() + e.first, e.num_fences, e.time_ns, e.thread);
                break;
            case Kind::task: consumer->submitted(batch.tasks[e.first], e.time_ns); break;
            case Kind::array: consumer->bound(batch.arrays[e.first], e.time_ns); break;
            case Kind::name:
                consumer->named(batch.arrays[e.first].number, batch.arrays[e.first].name, e.time_ns);
                break;
            }
        }
    }
    for (const auto& [consumer, lost_before] : consumers_) consumer->flush();
}

}  // namespace kmm::trace
