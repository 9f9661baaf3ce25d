// One submit while it is being made: drafts of tasks, what their arguments want, the plan that follows.
//
// Owns: the records until they are published, temporaries until the runtime has them. Used by the submitting thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kmm/api/array_record.hpp"
#include "kmm/api/temporaries.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/plan/needs.hpp"

namespace kmm::detail {

struct NewBinding {
    ArrayRecord* array;
    std::unique_ptr<Binding> binding;
};

class KeptDraft;

struct Submission::Draft final : Batch {
    KeptDraft* keeper = nullptr;  ///< of the thread that made it; null: a submit that any thread may go on with
    RuntimeCore* core = nullptr;
    LauncherInfo launcher;
    std::vector<DraftAccess> accesses;
    std::vector<plan::Request> wanted;  ///< one for each access
    std::vector<plan::PlannedArray> arrays;
    plan::SubmitPlan plan;
    std::vector<NewBinding> bindings;
    Temporaries temporaries;
    graph::SubmitInfoSource info;  ///< of the submit before: a loop submits from one place
    std::int64_t submit_begin_ns = 0;

    /// Whether its lists have grown to more than some 5 MB. Such a draft is not kept: a thread that makes only small
    /// submits from then on would hold it for nothing; another large submit costs the allocations again.
    bool is_large() const noexcept {
        constexpr std::size_t most_entries = 16384;
        return wanted.size() > most_entries || tasks().capacity() > 32 * most_entries ||
               plan.num_pieces() > most_entries;
    }
    graph::Task& current() { return *tasks().back(); }
    void clear() noexcept {
        temporaries.drop();
        drop();
        accesses.clear();
        wanted.clear();
        arrays.clear();
        bindings.clear();
    }
    // ---- Batch
    void check() override;
    void bind() override {
        if (!bindings.empty() || !temporaries.entries().empty()) bind_new();
    }
    void connect() override;
    const plan::Request* requests() const noexcept override { return wanted.data(); }
    std::int64_t begin_ns() const noexcept override { return submit_begin_ns; }

    void bind_new();
    void find_bindings();
    std::uint32_t number_of(Binding& binding);
    void bind_first_writes();
    Binding* bind_first_write(ArrayRecord& array, const std::vector<std::uint32_t>& positions);
    void make_plan();
    [[noreturn]] void throw_refusal(const ArrayRecord& array) const;
    ConflictParty party(const plan::Request& r) const;
    void describe_tasks();
    void make_temporaries();
    std::size_t describe_view(graph::Task& t, std::size_t request);
    void describe_across(graph::Task& t, std::size_t begin, std::size_t end);
    void connect_access(graph::Task& t, std::size_t request);
    void connect_gathers();
    void place_gather(graph::TaskNumber helper, graph::TaskNumber task, graph::UnorderedSet<graph::TaskNumber>& joins);
    graph::TaskNumber place_behind(const graph::Task& helper,
                                   graph::UnorderedMap<graph::TaskNumber, graph::TaskNumber>& joins) const;
    void connect_write_backs();
    static void fill_before(graph::Task& t, std::uint32_t view, const Box& region);
    void share_info();
};

}  // namespace kmm::detail
