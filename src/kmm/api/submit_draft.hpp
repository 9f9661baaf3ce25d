// One submit while it is being made: what its arguments want, its checks, the plan that follows.
//
// Owns: the new bindings of first writes. Used by the submitting thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kmm/api/plan_batch.hpp"

namespace kmm::detail {

struct NewBinding {
    ArrayRecord* array;
    std::unique_ptr<Binding> binding;
};

class KeptDraft;

struct Submission::Draft final : PlanBatch {
    KeptDraft* keeper = nullptr;  ///< of the thread that made it; null: a submit that any thread may go on with
    LauncherInfo launcher;
    std::vector<const plan::PlannedArray*> arrays;
    plan::Planner planner;
    std::vector<NewBinding> bindings;
    graph::SubmitInfoSource info;  ///< of the submit before: a loop submits from one place
    std::int64_t submit_begin_ns = 0;
    std::size_t num_late = 0;  ///< tasks that are kernels with a body

    /// Whether its lists have grown to more than some 5 MB. Such a draft is not kept: a thread that makes only small
    /// submits from then on would hold it for nothing; another large submit costs the allocations again.
    bool is_large() const noexcept {
        constexpr std::size_t most_entries = 16384;
        return wanted.size() > most_entries || tasks().capacity() > 32 * most_entries ||
               planner.plan().pieces.size() > most_entries;
    }
    void clear() noexcept {
        PlanBatch::clear();
        arrays.clear();
        bindings.clear();
        num_late = 0;
    }
    // ---- Batch
    void check() override;
    void bind() override {
        if (!bindings.empty()) bind_new();
        PlanBatch::bind();
    }
    std::int64_t begin_ns() const noexcept override { return submit_begin_ns; }

    template<typename F>
    AddedAccess add_access(ArrayRecord& array, AccessKind kind, std::uint32_t argument, const F* along);
    /// Debug mode: logs what a mapping, which gives `along(k)` for axis k, asks for outside the array.
    void log_outside(const ArrayRecord& array, std::uint32_t argument,
                     const std::function<Range<>(std::size_t)>& along);
    /// RuntimeConfig::range_check: warns of ranges that look like closed ones.
    void check_ranges(const IndexMap* mapping, const ArrayRecord& array, std::uint32_t argument);
    void bind_new();
    void find_bindings();
    /// Among the arrays of the submit. O(1): the array remembers a number, which counts if it is the array's now
    /// (Briggs, Torczon: An efficient representation for sparse sets, 1993).
    std::uint32_t number_of(Binding& binding) {
        const std::uint32_t known = binding.number_in_submit;
        if (known < arrays.size() && arrays[known] == &binding.planned) return known;
        binding.number_in_submit = static_cast<std::uint32_t>(arrays.size());
        arrays.push_back(&binding.planned);
        return binding.number_in_submit;
    }
    void bind_first_writes();
    Binding* bind_first_write(ArrayRecord& array, const std::vector<std::uint32_t>& positions);
    [[noreturn]] void throw_refusal(const ArrayRecord& array) const;
    [[noreturn]] void throw_too_large() const;
    ConflictParty party(const plan::Request& r) const;
    void share_info();
};

}  // namespace kmm::detail
