// Plans submits of regular domains for one of several ranks, each alone: every rank is told of every submit, and makes
// of it what concerns its own tasks.
//
// Owns: who wrote and who read which box of an array last, by submit and formula; the numbers. Pure: must not know
// where bytes are, who runs a task, threads. Not thread-safe.
//
// A submit whose regions have formulas (DomainRule, RegionRule) is one entry of the history of an array, however many
// tasks it has; which of its tasks used a box follows from the inverse of its formula (as in Legion's index launches
// and Celerity's replicated graphs, each node of which finds its own part). So planning takes the time of the rank's
// own tasks and of what they exchange with others, and O(log n) for the n tiles along an axis of the domain.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kmm/graph/box_tree.hpp"
#include "ranks/rank_plan.hpp"
#include "ranks/region_rule.hpp"

namespace kmm::ranks {

/// One argument of a submit: which elements of an array each chunk of the domain uses.
struct RuleAccess {
    std::uint32_t array = 0;
    AccessKind kind = AccessKind::read;
    std::array<AxisRule, max_rank> axes;  ///< one for each axis of the array
};

struct RuleSubmit {
    DomainRule domain;  ///< of owners 0 .. ranks * owners of a rank; rank r has the r-th share of them
    std::vector<RuleAccess> accesses;
};

/// Why a submit is refused. All ranks refuse it alike.
struct RuleRefusal {
    enum class Reason : std::uint8_t {
        owners,     ///< the domain has other owners than the ranks
        conflict,   ///< two accesses, or two tasks, write `region`
        unwritten,  ///< `region` is read and was never written
    };
    Reason reason = Reason::conflict;
    std::uint32_t first = 0;  ///< positions among the accesses
    std::uint32_t second = 0;
    Box region;
};

class RankPlanner {
  public:
    /// `rank`: below `num_ranks`, or `every_rank`.
    RankPlanner(RankNumber num_ranks, std::uint32_t owners_of_rank, RankNumber rank);

    /// Returns its number, from 0 on.
    std::uint32_t add_array(std::size_t rank, const Box& box);
    /// Plans the rank's part and takes the submit into the history; nullopt, and nothing has changed: see `refusal`.
    /// Takes the time of the rank's tasks and of what they come after. O(all tasks) for accesses that write with gaps
    /// between the regions of neighbours (a step larger than the length), that read what was written in part, and where
    /// several accesses of one array may write the same. After std::bad_alloc the planner is of no use any more.
    std::optional<RankPlan> submit(const RuleSubmit& submit);
    const RuleRefusal& refusal() const noexcept { return refusal_; }
    /// Tasks up to this number have settled: nothing comes after them any more. What they wrote stays known. Costs as
    /// much as there are entries.
    void forget_up_to(TaskNumber number);

    TaskNumber next_number() const noexcept { return next_; }
    /// Submits that some entry of a history names, for tests.
    std::size_t num_kept_submits() const noexcept { return submits_.size() - free_submits_.size(); }
    /// Boxes that an array was cut into.
    std::size_t num_segments(std::uint32_t array) const noexcept { return arrays_[array].segments.size(); }
    /// How many regions of tasks and bounds of tiles were computed so far, for tests.
    std::uint64_t num_looked_at() const noexcept { return num_looked_at_; }

  private:
    static constexpr std::size_t every_chunk = ~std::size_t{0};

    /// A submit that histories name.
    struct Kept {
        TaskNumber first = 0;
        TaskNumber last = 0;
        DomainRule domain;
        std::vector<RegionRule> regions;  ///< by access
        std::uint64_t used = 0;           ///< when it was named last, by `sweep_`
    };
    /// Tasks of a submit that use something by one access: those of all chunks, or of one.
    struct Use {
        std::uint32_t submit = 0;
        std::uint32_t access = 0;
        std::size_t chunk = every_chunk;
        friend bool operator==(const Use&, const Use&) = default;
    };
    /// Of a box of an array: everything in it was written by `writer`, and read by `readers` since.
    struct Uses {
        Use writer;
        std::vector<Use> readers;
    };
    struct ArrayHistory {
        explicit ArrayHistory(std::size_t array_rank, const Box& array)
            : rank(array_rank), box(array), segments(rank) {}
        std::size_t rank;
        Box box;
        graph::BoxTree<std::uint32_t> segments;  ///< positions in `uses`
        std::vector<Uses> uses;
        std::vector<std::uint32_t> free_uses;
    };

    bool is_own(std::size_t owner) const noexcept { return first_owner_ <= owner && owner < end_owner_; }
    RankNumber rank_of(const Kept& submit, std::size_t chunk) const noexcept {
        return static_cast<RankNumber>(submit.domain.owner(chunk) / owners_of_rank_);
    }
    Box region_of(const Kept& submit, std::size_t access, std::size_t chunk);
    /// Calls `f(chunk, part)` for each chunk of `use` that `wants(chunk)` and whose region has elements in `box`, until
    /// `f` returns false: `part` is these.
    template<typename W, typename F> void each_user_that(const Use& use, const Box& box, W&& wants, F&& f);
    template<typename F> void each_user(const Use& use, const Box& box, F&& f);
    /// As `each_user`, for the rank's own tasks alone.
    template<typename F> void each_own_user(const Use& use, const Box& box, F&& f);
    /// As `each_user`, for tasks of other ranks.
    template<typename F> void each_other_user(const Use& use, const Box& box, F&& f);
    template<typename F> void each_own_task(const Kept& submit, F&& f);

    bool may_be_submitted(const RuleSubmit& submit, const Kept& kept);
    bool check_writes(const RuleSubmit& submit, const Kept& kept);
    bool check_pair(const RuleSubmit& submit, const Kept& kept, std::uint32_t a, std::uint32_t b);
    bool check_content(const RuleSubmit& submit, const Kept& kept);
    bool refuse(RuleRefusal::Reason reason, std::size_t first, std::size_t second, const Box& region);

    void plan_task(const RuleSubmit& submit, std::uint32_t kept, std::size_t chunk, RankPlan& plan);
    void plan_access(const RuleSubmit& submit, const Use& of, const Box& region, RankTask& task, RankPlan& plan);
    void plan_inside(const RuleSubmit& submit, const Use& of, RankAccess& access, RankTask& task);
    void plan_sends(const RuleSubmit& submit, std::uint32_t kept, RankPlan& plan);

    std::uint32_t keep(const RuleSubmit& submit);
    void note(const RuleSubmit& submit, std::uint32_t kept);
    void note_read(ArrayHistory& array, const Use& use, const Box& box);
    void note_write(ArrayHistory& array, const Use& use, const Box& box);
    void add_segment(ArrayHistory& array, const Box& box, Uses uses);
    void drop_unused();

    std::uint32_t owners_of_rank_;
    std::size_t num_owners_;
    std::size_t first_owner_;
    std::size_t end_owner_;
    RankNumber rank_;
    TaskNumber next_ = 1;
    TaskNumber forgotten_up_to_ = 0;
    std::vector<ArrayHistory> arrays_;
    std::vector<Kept> submits_;
    std::vector<std::uint32_t> free_submits_;
    std::size_t most_before_sweep_ = 64;
    std::uint64_t sweep_ = 0;
    RuleRefusal refusal_;
    std::uint64_t num_looked_at_ = 0;
};

}  // namespace kmm::ranks
