#include "replay.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <semaphore>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common.hpp"

namespace kmm::bench {

ReplayLog::ReplayLog(std::vector<Event> events) : events_(std::move(events)) {
    allocated_by_.assign(events_.size(), nothing);
    std::unordered_map<std::size_t, std::size_t> thread_numbers;
    std::unordered_map<std::uintptr_t, std::size_t> live;  // address: event that allocated it last
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
        const Event& event = events_[i];
        const auto [thread, is_new] = thread_numbers.try_emplace(event.thread_id, threads_.size());
        if (is_new) threads_.emplace_back();
        threads_[thread->second].push_back(i);
        thread_of_.push_back(thread->second);
        if (event.stream > 2 && std::find(streams_.begin(), streams_.end(), event.stream) == streams_.end())
            streams_.push_back(event.stream);
        if (event.act == Action::ALLOCATE) {
            live[event.pointer] = i;
            bytes += event.size;
            peak_bytes_ = std::max(peak_bytes_, bytes);
            ++num_leaked_;
            leaked_bytes_ += event.size;
        } else if (event.act == Action::FREE) {
            const auto found = live.find(event.pointer);
            if (found == live.end()) continue;
            allocated_by_[i] = found->second;
            const std::size_t allocated = events_[found->second].size;
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
        for (std::size_t thread = 0; thread < num_threads; ++thread) {
            threads.emplace_back([&, thread] {
                if (num_ready.fetch_add(1) + 1 == num_threads) all_ready.release();
                go.wait(false);
                if (order == ReplayOrder::of_the_log)
                    run_in_turns(thread, turns);
                else
                    run_alone(thread);
            });
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
                resource_.deallocate(pointer, log_.events()[i].size, views_[i]);
        }
    }

    std::vector<ReplayFailure> failures() {
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

    void execute(std::size_t thread, std::size_t i) {
        const Event& event = log_.events()[i];
        if (event.act == Action::ALLOCATE) {
            void* block = refused();
            try {
                block = resource_.allocate(event.size, views_[i]);
                if (block == nullptr) block = none();
            } catch (const std::exception& error) {
                failures_[thread].push_back({i, error.what()});
            }
            blocks_[i].store(block);
            blocks_[i].notify_all();
        } else if (event.act == Action::FREE) {
            const std::size_t allocation = log_.allocated_by(i);
            void* block = nullptr;
            if (allocation != ReplayLog::nothing) {
                blocks_[allocation].wait(nullptr);
                block = blocks_[allocation].exchange(nullptr);
                if (block == refused()) return;
                if (block == none()) block = nullptr;
            }
            resource_.deallocate(block, event.size, views_[i]);
        }
    }

    const ReplayLog& log_;
    rmm::mr::device_memory_resource& resource_;
    std::vector<rmm::cuda_stream_view> views_;
    std::vector<std::atomic<void*>> blocks_;  // of each event that allocates, while its block is live
    std::vector<std::vector<ReplayFailure>> failures_;
};

}  // namespace

ReplayResult replay(const ReplayLog& log, rmm::mr::device_memory_resource& resource, const ReplayStreams& streams,
                    ReplayOrder order, void (*before_cleanup)(void*), void* user) {
    Replay run(log, resource, streams);
    ReplayResult result;
    result.seconds = run.run(order);
    result.failures = run.failures();
    if (before_cleanup != nullptr) before_cleanup(user);
    run.free_rest();
    streams.synchronize();
    return result;
}

}  // namespace kmm::bench
