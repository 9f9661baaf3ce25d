#include "replay.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <semaphore>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common.hpp"

#include <rmm/error.hpp>

namespace kmm::bench {

namespace {

constexpr std::size_t most_odd_in_words = 100;
constexpr std::size_t most_whole_reasons = 1000;  // those of pools have a thousand letters

std::string hexadecimal(std::uintptr_t address) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%zx", static_cast<std::size_t>(address));
    return text;
}

}  // namespace

std::string ReplayLog::place_of(std::size_t index) const {
    const std::size_t line = events_[index].line;
    return line != 0 ? "line " + std::to_string(line) : "event " + std::to_string(index);
}

void ReplayLog::refuse(std::size_t index, const std::string& why) const {
    throw rmm::logic_error("the log cannot be replayed, " + place_of(index) + ": " + why);
}

void ReplayLog::note_odd(std::size_t index, const std::string& what) {
    if (++num_odd_ <= most_odd_in_words) odd_.push_back(place_of(index) + ": " + what);
}

void ReplayLog::note_allocation(std::size_t index, std::size_t* live_bytes) {
    const std::size_t bytes = events_[index].size;
    // What leaks is at least as much as what is live.
    if (bytes > ~std::size_t{0} - leaked_bytes_)
        refuse(index, std::to_string(bytes) + " bytes are allocated when " + std::to_string(leaked_bytes_) +
                          " are live: together more than any address space has");
    *live_bytes += bytes;
    peak_bytes_ = std::max(peak_bytes_, *live_bytes);
    ++num_leaked_;
    leaked_bytes_ += bytes;
}

ReplayLog::ReplayLog(std::vector<Event> events) : events_(std::move(events)) {
    allocated_by_.assign(events_.size(), nothing);
    std::unordered_map<std::size_t, std::size_t> thread_numbers;
    std::unordered_set<std::uintptr_t> known_streams;
    std::unordered_map<std::uintptr_t, std::size_t> live;  // address: event that allocated it last
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const Event& event = events_[i];
        const auto [thread, is_new] = thread_numbers.try_emplace(event.thread_id, threads_.size());
        if (is_new) {
            if (threads_.size() == most_threads)
                refuse(i, "thread " + std::to_string(event.thread_id) + " is one more than the " +
                              std::to_string(most_threads) + " that a replay makes: cut the log into parts");
            threads_.emplace_back();
        }
        threads_[thread->second].push_back(i);
        thread_of_.push_back(thread->second);
        if (event.stream > 2 && known_streams.insert(event.stream).second) {
            if (streams_.size() == most_streams)
                refuse(i, "stream " + hexadecimal(event.stream) + " is one more than the " +
                              std::to_string(most_streams) + " that a replay makes: cut the log into parts");
            streams_.push_back(event.stream);
        }
        if (event.act == Action::ALLOCATE) {
            note_allocation(i, &bytes);
            const auto [known, first] = live.try_emplace(event.pointer, i);
            if (!first && event.pointer != 0)
                note_odd(i, hexadecimal(event.pointer) + " is allocated, which " + place_of(known->second) +
                                " has and nothing freed");
            known->second = i;
        } else if (event.act == Action::FREE) {
            const auto found = live.find(event.pointer);
            if (found == live.end()) {
                if (event.pointer != 0)
                    note_odd(i, hexadecimal(event.pointer) + " is freed, which nothing has allocated");
                continue;
            }
            allocated_by_[i] = found->second;
            const std::size_t allocated = events_[found->second].size;
            if (allocated != event.size)
                note_odd(i, hexadecimal(event.pointer) + " is freed with " + std::to_string(event.size) + " bytes, " +
                                place_of(found->second) + " allocated " + std::to_string(allocated));
            bytes -= allocated;
            --num_leaked_;
            leaked_bytes_ -= allocated;
            live.erase(found);
        }
    }
}

ReplayStreams::ReplayStreams(const ReplayLog& log) {
    for (const std::uintptr_t logged : log.streams())
        streams_.emplace(logged, rmm::cuda_stream(rmm::cuda_stream::flags::non_blocking));
}

rmm::cuda_stream_view ReplayStreams::of(std::uintptr_t logged) const {
    switch (logged) {
    case 0: return rmm::cuda_stream_default;
    case 1: return rmm::cuda_stream_legacy;
    case 2: return rmm::cuda_stream_per_thread;
    default: return streams_.at(logged).view();
    }
}

void ReplayStreams::synchronize() const {
    rmm::cuda_stream_default.synchronize();
    for (const auto& [logged, stream] : streams_) stream.synchronize();
}

namespace {

class Replay {
  public:
    Replay(const ReplayLog& log, rmm::mr::device_memory_resource& resource, const ReplayStreams& streams)
        : log_(log), resource_(resource), blocks_(log.events().size()), failures_(log.threads().size()) {
        views_.reserve(log.events().size());
        for (const Event& event : log.events()) views_.push_back(streams.of(event.stream));
    }

    double run(ReplayOrder order) {
        const std::size_t num_threads = log_.threads().size();
        std::vector<std::unique_ptr<std::binary_semaphore>> turns;
        for (std::size_t i = 0; i < num_threads; ++i) turns.push_back(std::make_unique<std::binary_semaphore>(0));
        std::vector<std::thread> threads;
        std::binary_semaphore all_ready(0);
        std::atomic<std::size_t> num_ready = 0;
        std::atomic<bool> go = false;
        std::atomic<bool> called_off = false;
        for (std::size_t thread = 0; thread < num_threads; ++thread) {
            try {
                threads.emplace_back([&, thread] {
                    if (num_ready.fetch_add(1) + 1 == num_threads) all_ready.release();
                    go.wait(false);
                    if (called_off) return;
                    if (order == ReplayOrder::of_the_log)
                        run_in_turns(thread, turns);
                    else
                        run_alone(thread);
                });
            } catch (const std::system_error& error) {
                called_off = true;
                go = true;
                go.notify_all();
                for (std::thread& made : threads) made.join();
                throw rmm::logic_error("the system gives no more than " + std::to_string(threads.size()) + " of the " +
                                       std::to_string(num_threads) + " threads of the log: " + error.what());
            }
        }
        if (num_threads > 0) all_ready.acquire();
        const auto begin = Clock::now();
        go = true;
        go.notify_all();
        if (order == ReplayOrder::of_the_log && num_threads > 0) turns[log_.thread_of(0)]->release();
        for (std::thread& thread : threads) thread.join();
        return seconds_since(begin);
    }

    void free_rest() {
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            void* const pointer = blocks_[i].load(std::memory_order_relaxed);
            if (pointer != nullptr && pointer != refused() && pointer != none())
                attempt(log_.thread_of(i), i, [&] { resource_.deallocate(pointer, log_.events()[i].size, views_[i]); });
        }
    }

    std::vector<ReplayFailure> failures() {
        if (num_untold_ > 0) throw std::bad_alloc();
        std::vector<ReplayFailure> all;
        for (auto& some : failures_) all.insert(all.end(), some.begin(), some.end());
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.event < b.event; });
        return all;
    }

  private:
    using Turns = std::vector<std::unique_ptr<std::binary_semaphore>>;

    // What stands in `blocks_` where there is no address: no resource gives out odd ones.
    static void* refused() { return reinterpret_cast<void*>(std::uintptr_t{1}); }
    static void* none() { return reinterpret_cast<void*>(std::uintptr_t{3}); }  // null was allocated: 0 bytes

    /// The turn goes to the thread of the next event; nobody else is woken.
    void run_in_turns(std::size_t thread, const Turns& turns) {
        for (const std::size_t i : log_.threads()[thread]) {
            if (i == 0 || log_.thread_of(i - 1) != thread) turns[thread]->acquire();
            execute(thread, i);
            if (i + 1 < blocks_.size() && log_.thread_of(i + 1) != thread) turns[log_.thread_of(i + 1)]->release();
        }
    }

    void run_alone(std::size_t thread) {
        for (const std::size_t i : log_.threads()[thread]) execute(thread, i);
    }

    /// Whatever happens the next event has its turn.
    void execute(std::size_t thread, std::size_t i) noexcept {
        const Event& event = log_.events()[i];
        if (event.act == Action::ALLOCATE) {
            void* block = refused();
            attempt(thread, i, [&] {
                block = resource_.allocate(event.size, views_[i]);
                if (block == nullptr) block = none();
            });
            blocks_[i].store(block);
            blocks_[i].notify_all();
        } else if (event.act == Action::FREE) {
            const std::size_t allocation = log_.allocated_by(i);
            std::size_t bytes = event.size;
            void* block = nullptr;
            if (allocation != ReplayLog::nothing) {
                blocks_[allocation].wait(nullptr);
                block = blocks_[allocation].exchange(nullptr);
                if (block == refused()) return;
                if (block == none()) block = nullptr;
                bytes = log_.events()[allocation].size;
            }
            attempt(thread, i, [&] { resource_.deallocate(block, bytes, views_[i]); });
        }
    }

    template<typename Work>
    void attempt(std::size_t thread, std::size_t i, Work work) noexcept {
        try {
            work();
        } catch (const std::exception& error) {
            fail(thread, i, error.what());
        } catch (...) {
            fail(thread, i, "an exception that is no std::exception");
        }
    }

    void fail(std::size_t thread, std::size_t i, std::string_view reason) noexcept {
        if (num_reasons_.fetch_add(1, std::memory_order_relaxed) >= most_whole_reasons)
            reason = reason.substr(0, reason.find('\n'));
        try {
            failures_[thread].push_back({i, std::string(reason)});
        } catch (const std::bad_alloc&) {
            num_untold_.fetch_add(1, std::memory_order_relaxed);
        }
    }

    const ReplayLog& log_;
    rmm::mr::device_memory_resource& resource_;
    std::vector<rmm::cuda_stream_view> views_;
    std::vector<std::atomic<void*>> blocks_;  // of each event that allocates, while its block is live
    std::vector<std::vector<ReplayFailure>> failures_;
    std::atomic<std::size_t> num_reasons_{0};
    std::atomic<std::size_t> num_untold_{0};  // failures for which the host had no memory
};

}  // namespace

ReplayResult replay(const ReplayLog& log, rmm::mr::device_memory_resource& resource, const ReplayStreams& streams,
                    ReplayOrder order, void (*before_cleanup)(void*), void* user) {
    Replay run(log, resource, streams);
    ReplayResult result;
    result.seconds = run.run(order);
    if (before_cleanup != nullptr) before_cleanup(user);
    run.free_rest();
    result.failures = run.failures();
    streams.synchronize();
    return result;
}

}  // namespace kmm::bench
