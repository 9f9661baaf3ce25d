#include "simulate/plays.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace kmm::simulate {

namespace {

/// Notes in which order tasks are issued.
class IssueOrder final : public trace::Consumer {
  public:
    explicit IssueOrder(std::vector<trace::Number>& order) : order_(order) {}
    void bound(const trace::Array&, std::int64_t) noexcept override {}
    void named(trace::Number, const std::string&, std::int64_t) noexcept override {}
    void submitted(const trace::Task&, std::int64_t) noexcept override {}
    void note(const trace::Event& e, const trace::Fence*, std::size_t, std::int64_t, std::uint32_t) noexcept override {
        if (e.what == trace::What::launch || e.what == trace::What::start ||
            (e.what == trace::What::move && graph::is_helper(e.task)))
            order_.push_back(e.task);
    }
    void finish(std::uint64_t) noexcept override {}

  private:
    std::vector<trace::Number>& order_;
};

/// Puts tasks behind what they come after, and gives them new numbers.
class Reordering {
  public:
    explicit Reordering(const Program& from) : from_(from) {
        for (const trace::Task& t : from.tasks) {
            tasks_[t.number] = &t;
            for (const trace::Use& u : t.uses) ++uses_[u.array];
        }
        for (const auto& drop : from.drops) dropped_.insert(drop.second);
        // No task uses these.
        for (const auto& drop : from.drops)
            if (uses_.count(drop.second) == 0) to_.drops.emplace_back(0, drop.second);
        to_.machine = from.machine;
        to_.arrays = from.arrays;
    }
    void put(trace::Number number) {
        std::vector<std::pair<const trace::Task*, std::size_t>> open;  // a task, and how many before it were looked at
        const auto begin = [&](trace::Number n) {
            if (numbers_.count(n) == 0)
                if (const auto at = tasks_.find(n); at != tasks_.end()) open.emplace_back(at->second, 0);
        };
        begin(number);
        while (!open.empty()) {
            const trace::Task& task = *open.back().first;
            std::size_t& looked_at = open.back().second;
            if (looked_at < task.predecessors.size()) {
                begin(task.predecessors[looked_at++].task);
                continue;
            }
            open.pop_back();
            add(task);
        }
    }
    Program take(std::vector<trace::Number>* numbers) {
        if (numbers != nullptr) *numbers = std::move(old_numbers_);
        return std::move(to_);
    }

  private:
    void add(const trace::Task& task) {
        if (numbers_.count(task.number) != 0) return;
        trace::Task copy = task;
        copy.number = graph::is_helper(task.number) ? graph::first_helper + ++num_helpers_ : ++num_tasks_;
        if (!graph::is_helper(task.number)) old_numbers_.push_back(task.number);
        numbers_[task.number] = copy.number;
        const auto run = std::distance(from_.waited_for_all.begin(), from_.waited_for_all.upper_bound(task.number));
        if (!graph::is_helper(task.number) && run > last_run_) {
            last_run_ = run;
            to_.waited_for_all.insert(copy.number);
        }
        for (trace::Predecessor& p : copy.predecessors)
            if (const auto at = numbers_.find(p.task); at != numbers_.end()) p.task = at->second;
        if (from_.failed.count(task.number) != 0) to_.failed.insert(copy.number);
        if (const auto at = from_.kernel_ns.find(task.number); at != from_.kernel_ns.end())
            to_.kernel_ns[copy.number] = at->second;
        to_.tasks.push_back(std::move(copy));
        // Handles go with the last task that was submitted with them.
        for (const trace::Use& u : task.uses)
            if (--uses_[u.array] == 0 && dropped_.count(u.array) != 0)
                to_.drops.emplace_back(to_.tasks.size(), u.array);
    }

    const Program& from_;
    Program to_;
    std::map<trace::Number, const trace::Task*> tasks_;
    std::map<trace::Number, trace::Number> numbers_;
    std::map<trace::Number, std::size_t> uses_;  ///< by tasks that are not added yet
    std::set<trace::Number> dropped_;
    std::vector<trace::Number> old_numbers_;
    std::uint64_t num_helpers_ = 0;
    trace::Number num_tasks_ = 0;
    std::ptrdiff_t last_run_ = 0;  ///< of those that the program waits before, of all tasks so far
};

}  // namespace

std::vector<Policies> all_policies() {
    using schedule::OrderPolicy;
    using memory::EvictionPolicy;
    using Before = Policies::Before;
    return {
        {"ours", "next use", OrderPolicy::fewest_bytes_a_task, EvictionPolicy::farthest_next_use, Before::as_it_is},
        {"ours", "least recently used", OrderPolicy::fewest_bytes_a_task, EvictionPolicy::least_recently_used,
         Before::as_it_is},
        {"ours", "clean first", OrderPolicy::fewest_bytes_a_task, EvictionPolicy::clean_first, Before::as_it_is},
        {"fewest bytes", "next use", OrderPolicy::fewest_bytes, EvictionPolicy::farthest_next_use, Before::as_it_is},
        {"as submitted", "next use", OrderPolicy::as_submitted, EvictionPolicy::farthest_next_use, Before::as_it_is},
        {"as submitted", "least recently used", OrderPolicy::as_submitted, EvictionPolicy::least_recently_used,
         Before::as_it_is},
        {"by depth", "next use", OrderPolicy::as_submitted, EvictionPolicy::farthest_next_use, Before::by_depth},
        {"ours, known before", "next use", OrderPolicy::as_submitted, EvictionPolicy::farthest_next_use,
         Before::as_issued},
    };
}

Program reordered(const Program& program, const std::vector<trace::Number>& order,
                  std::vector<trace::Number>* numbers) {
    Reordering reordering(program);
    for (const trace::Number n : order) reordering.put(n);
    for (const trace::Task& t : program.tasks) reordering.put(t.number);
    return reordering.take(numbers);
}

std::vector<trace::Number> order_by_depth(const Program& program) {
    std::map<trace::Number, std::uint64_t> depths;
    std::vector<std::pair<std::uint64_t, trace::Number>> order;
    for (const trace::Task& t : program.tasks) {
        std::uint64_t depth = 0;
        for (const trace::Predecessor& p : t.predecessors)
            if (const auto at = depths.find(p.task); at != depths.end()) depth = std::max(depth, at->second + 1);
        depths[t.number] = depth;
        order.emplace_back(depth, t.number);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<trace::Number> numbers;
    for (const auto& [depth, number] : order) numbers.push_back(number);
    return numbers;
}

Outcome play(const Program& program, const Policies& policies, const Rates& rates,
             const TimedDevices::KernelNs& kernel_ns, std::int64_t submit_ns) {
    if (policies.before != Policies::Before::as_it_is) {
        std::vector<trace::Number> order;
        if (policies.before == Policies::Before::by_depth)
            order = order_by_depth(program);
        else
            order = play(program, all_policies().front(), rates, kernel_ns, submit_ns).issue_order;
        std::vector<trace::Number> numbers;
        const Program other = reordered(program, order, &numbers);
        Policies then = policies;
        then.before = Policies::Before::as_it_is;
        const auto other_ns = [&](graph::TaskNumber n) {
            return kernel_ns && n != 0 && n <= numbers.size() ? kernel_ns(numbers[n - 1]) : 0;
        };
        return play(other, then, rates, other_ns, submit_ns);
    }
    Outcome outcome;
    IssueOrder issued(outcome.issue_order);
    TimedDevices devices(program.machine, rates, kernel_ns);
    PlayOptions options;
    options.submit_ns = submit_ns;
    options.order = policies.order_policy;
    options.eviction = policies.eviction_policy;
    Player player(program, devices, &issued, options);
    outcome.ended = player.play();
    const schedule::SchedulerCounters& counters = player.counters();
    outcome.failed_tasks = counters.failed + counters.cancelled;
    outcome.bytes_up = player.bytes_moved(memory::Link::host_to_device);
    outcome.bytes_down = player.bytes_moved(memory::Link::device_to_host);
    outcome.bytes_peer = player.bytes_moved(memory::Link::device_to_device);
    outcome.seconds = static_cast<double>(devices.now_ns() - player.counted_from_ns()) * 1e-9;
    for (const memory::MemoryIndex m : program.machine.limits_bytes.memories()) {
        if (m.is_host()) continue;
        outcome.evictions += player.counters(m).evictions;
        outcome.busy_seconds = std::max(outcome.busy_seconds, devices.busy_ns(m.device()) * 1e-9);
    }
    return outcome;
}

}  // namespace kmm::simulate
