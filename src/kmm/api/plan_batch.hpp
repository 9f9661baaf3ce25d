// Tasks that take their places as a plan says: the one place that applies a plan.
//
// Owns: records until they are published, temporaries until the runtime has them. Must not know: why the plan is as it
// is, launchers. Used by the submitting thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kmm/api/array_record.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/plan/planner.hpp"

namespace kmm::detail {

/// What the plan need not know of an access of a task; its request is at the same position.
struct DraftAccess {
    ArrayRecord* array = nullptr;
    Binding* binding = nullptr;
    std::uint32_t view = 0;  ///< position in the task
};

class PlanBatch : public Batch {
  public:
    PlanBatch() = default;
    ~PlanBatch() { drop_temporaries(); }

    RuntimeCore* core = nullptr;
    std::vector<DraftAccess> accesses;
    std::vector<plan::Request> wanted;  ///< one for each access
    /// Of `wanted`. Valid until the batch is committed.
    const plan::SubmitPlan* planned = nullptr;
    /// That made the plan, of the bindings that it is applied to; null: the plan comes from elsewhere.
    const plan::Planner* planned_by = nullptr;

    graph::Task& current() { return *tasks().back(); }

    // ---- Batch
    /// Makes what the plan says: temporaries, records of transfers, uses of tasks. Throws std::bad_alloc; nothing that
    /// counts has changed then.
    void check() override;
    void bind() override;
    void connect() final;
    const plan::Request* requests() const noexcept final { return wanted.data(); }

  protected:
    /// For the next submit.
    void clear() noexcept {
        drop_temporaries();
        drop();
        accesses.clear();
        wanted.clear();
        planned = nullptr;
        planned_by = nullptr;
    }

  private:
    /// Memory for regions beside the chunks (memory::Temporary). A transfer gathers what the tasks read into it before
    /// they run, or the tasks do when they are placed (graph::Across); a transfer for each piece brings what they wrote
    /// back into the chunks. Transfers are helpers of the batch.
    struct Temporary {
        std::unique_ptr<memory::Temporary> owned;  ///< until the submit has its place in the order
        memory::Temporary* data = nullptr;         ///< the same; from then on the runtime's, which frees unused ones
        graph::Task* gather = nullptr;             ///< null: nothing is filled in ahead
        std::uint32_t first_task = none;           ///< position in the submit of the first task that uses it
        std::uint32_t last_task = 0;               ///< where the last task or write-back stands that uses it
    };
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    using TaskSet = graph::UnorderedSet<TaskNumber>;
    using Places = graph::UnorderedMap<TaskNumber, TaskNumber>;

    // check
    void make_temporaries();
    Task& make_transfer(const plan::Transfer& of_plan, std::size_t num_uses);
    void make_gather(const plan::Transfer& of_plan);
    void make_write_back(const plan::Transfer& of_plan);
    void describe_tasks();
    void describe_view(Task& t, std::size_t request);
    void describe_across(Task& t, std::size_t begin, std::size_t end);
    void add_across(Task& t, std::size_t request);
    static std::uint32_t use_of_part(Task& t, memory::Chunk& chunk);
    static void fill_before(Task& t, std::uint32_t view, const Box& region);
    void count_use(std::uint32_t temporary, std::uint32_t task) noexcept;
    // connect
    void connect_access(Task& t, std::size_t request);
    void connect_gathers();
    void connect_write_backs();
    void connect_write_back(std::size_t transfer, Places& joins);
    void place_gather(TaskNumber helper, TaskNumber task, TaskSet& joins);
    TaskNumber place_behind(const Task& helper, Places& joins) const;
    void add_to_held() noexcept;

    Binding& binding_of(const plan::Transfer& t) const noexcept {
        return *accesses[planned->temporaries[t.temporary].request].binding;
    }
    void drop_temporaries() noexcept {
        if (!temporaries_.empty()) [[unlikely]]
            give_back_temporaries();
    }
    void give_back_temporaries() noexcept;

    std::vector<Temporary> temporaries_;        ///< of the plan
    std::vector<Task*> transfers_;              ///< likewise
    std::size_t num_given_ = 0;                 ///< of `transfers_`: those that the batch has
    std::vector<std::ptrdiff_t> held_changes_;  ///< by task: bytes held more than at the task before it
};

}  // namespace kmm::detail
