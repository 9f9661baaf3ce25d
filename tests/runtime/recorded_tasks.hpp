// What a program submits, as its record says: with all that each task comes after.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <set>
#include <string>

#include "kmm/kmm.hpp"
#include "kmm/trace/record_reader.hpp"

namespace kmm_test {

using kmm::trace::Number;
using kmm::trace::TaskKind;

/// The tasks of a record, in the order of their numbers.
class RecordedTasks final : public kmm::trace::Consumer {
  public:
    void bound(const kmm::trace::Array& array, std::int64_t) noexcept override { boxes[array.number] = array.box; }
    void named(Number, const std::string&, std::int64_t) noexcept override {}
    void submitted(const kmm::trace::Task& task, std::int64_t) noexcept override { tasks[task.number] = task; }
    void note(const kmm::trace::Event&, const kmm::graph::Fence*, std::size_t, std::int64_t,
              std::uint32_t) noexcept override {}
    void finish(std::uint64_t) noexcept override {}

    /// All that a task comes after, also through others. Joins without a place in the order have the largest numbers.
    const std::set<Number>& all_before(Number number) const {
        const auto [at, is_new] = before_.try_emplace(number);
        if (is_new)
            for (const auto& p : tasks.at(number).predecessors) {
                at->second.insert(p.task);
                const std::set<Number>& more = all_before(p.task);
                at->second.insert(more.begin(), more.end());
            }
        return at->second;
    }

    std::map<Number, kmm::trace::Task> tasks;
    std::map<Number, kmm::detail::Box> boxes;  ///< of arrays

  private:
    mutable std::map<Number, std::set<Number>> before_;
};

/// What `program` submits on the host driver while the only host thread is busy, so that nothing has settled. `busy`:
/// the number of the task that keeps it so, right before the program's first.
inline RecordedTasks record_of(const std::function<void(const kmm::RuntimeHandle&)>& program, Number* busy = nullptr) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("kmm_record_" + std::to_string(::getpid()) + ".txt");
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.host_threads = 1;
    config.record = file.string();
    {
        const kmm::RuntimeHandle rt = kmm::make_runtime(config);
        std::latch all_submitted(1);
        const kmm::EventId event = rt.submit(kmm::ResourceId::host(), kmm::Host([&] { all_submitted.wait(); }));
        if (busy != nullptr) *busy = event.get() & ((std::uint64_t{1} << 47) - 1);
        program(rt);
        all_submitted.count_down();
        rt.synchronize();
    }
    RecordedTasks tasks;
    std::ifstream in(file);
    bool complete = false;
    (void)kmm::trace::read_record(in, file.string(), tasks, &complete);
    EXPECT_TRUE(complete);
    std::filesystem::remove(file);
    return tasks;
}

}  // namespace kmm_test
