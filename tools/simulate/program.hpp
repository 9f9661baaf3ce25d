// What a program submitted, as plain values: what the simulator plays.
//
// Owns: arrays, tasks, the machine. Made by `trace::read_record` or by a generator (generators.hpp). Must not know: who
// plays it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kmm/trace/collector.hpp"

namespace kmm::simulate {

class Program final : public trace::Consumer {
  public:
    void bound(const trace::Array& array, std::int64_t) noexcept override;
    void named(trace::Number array, const std::string& name, std::int64_t) noexcept override;
    void submitted(const trace::Task& task, std::int64_t) noexcept override { tasks.push_back(task); }
    void note(const trace::Event& event, const trace::Fence*, std::size_t, std::int64_t,
              std::uint32_t) noexcept override;
    void finish(std::uint64_t) noexcept override {}

    trace::Machine machine;
    std::vector<trace::Array> arrays;
    std::vector<trace::Task> tasks;
    /// Arrays whose last handle was dropped, each behind so many tasks, in this order.
    std::vector<std::pair<std::size_t, trace::Number>> drops;
    std::set<trace::Number> failed;                   ///< tasks that failed by themselves
    std::set<trace::Number> waited_for_all;           ///< submitted when all before them were settled
    std::map<trace::Number, std::int64_t> kernel_ns;  ///< how long kernels took, where that was recorded

  private:
    void drop(trace::Number array);

    std::map<std::pair<graph::LaneId, graph::Position>, trace::Number> launched_;
    std::set<trace::Number> held_;  ///< arrays with handles
};

}  // namespace kmm::simulate
