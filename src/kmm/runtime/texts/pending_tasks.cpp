#include "kmm/runtime/texts/pending_tasks.hpp"

#include "driver/format.hpp"

#include <algorithm>
#include <deque>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kmm/boxes/box.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/runtime/texts/task_stage.hpp"

namespace kmm::detail {

namespace {

using graph::Task;
using graph::TaskKind;
using graph::TaskNumber;
using graph::Use;

constexpr const char* barrier_text = "in order after all tasks before it";

/// An array or a temporary that pending tasks use.
struct OwnerFigures {
    explicit OwnerFigures(const memory::Owner& owner)
        : name(owner.name()), is_temporary(owner.is_temporary()), num_chunks(owner.num_chunks()), rank(owner.rank) {
        if (is_temporary) region = owner.box(0);
    }
    std::string region_text() const { return driver::format("{} of \"{}\"", boxes::to_text(region, rank), name); }

    std::string name;
    bool is_temporary;
    std::size_t num_chunks;
    std::size_t rank;
    boxes::Box region;  ///< of a temporary
};

struct UseFigures {
    std::uint32_t owner;  ///< index in `Figures::owners`
    std::uint32_t chunk;
    Use::Role role;
    plan::ContentNeeds content;
};

struct EdgeFigures {
    TaskNumber before;
    bool data;
};

const char* text_of(TaskStage stage) {
    switch (stage) {
    case TaskStage::waiting: break;
    case TaskStage::held_back: return "held back: earlier tasks need the memory";
    case TaskStage::ready: return "ready";
    case TaskStage::waits_for_chunk: return "waits for a chunk that a running task holds";
    case TaskStage::waits_for_memory: return "waits for memory";
    case TaskStage::waits_for_lanes: return "waits for work on devices";
    case TaskStage::waits_for_thread: return "waits for a thread";
    case TaskStage::in_function: return "running";
    case TaskStage::on_device: return "handed to the device";
    case TaskStage::executed: return "done, waits for tasks before it";
    case TaskStage::settled: return "done";
    }
    return "waiting";
}

const char* verb_of(const UseFigures& use) {
    switch (use.role) {
    case Use::Role::source: return "copies from";
    case Use::Role::part: return "reads a part of";
    case Use::Role::parts: return "reads parts of";
    case Use::Role::region:
    case Use::Role::chunk: break;
    }
    if (use.content.owes_nothing()) return "overwrites";
    return use.content.writes ? "writes" : "reads";
}

std::string use_text(const UseFigures& use, const OwnerFigures& owner) {
    if (use.role == Use::Role::region) return driver::format("{} {} across chunks", verb_of(use), owner.region_text());
    if (owner.is_temporary) return driver::format("{} the temporary {}", verb_of(use), owner.region_text());
    return driver::format("{} \"{}\" chunk {} of {}", verb_of(use), owner.name, use.chunk, owner.num_chunks);
}

/// "7"; a helper "h7".
std::string number_text(TaskNumber number) {
    return graph::is_helper(number) ? driver::format("h{}", number - graph::first_helper)
                                    : driver::format("{}", number);
}

/// An identifier, which does not begin with a digit.
std::string node_text(TaskNumber number) {
    return graph::is_helper(number) ? number_text(number) : "t" + number_text(number);
}

/// One line of a quoted label, left-justified: Graphviz reads escapes that begin with a backslash, and entities of
/// HTML.
std::string label_line(std::string_view line) {
    std::string text;
    for (const char c : line) {
        switch (c) {
        case '"': text += "\\\""; break;
        case '\\': text += "\\\\"; break;
        case '&': text += "&amp;"; break;
        case '\n': text += "\\l"; break;
        case '\0': break;  // would end the file
        default: text += c;
        }
    }
    return text + "\\l";
}

}  // namespace

struct PendingTasks::TaskFigures {
    TaskFigures(const Task& task, TaskStage at) noexcept
        : name(task),
          stage(at),
          has_failed(task.ended_ill()),
          is_cancelled(task.failure != nullptr && !has_failed),
          memory(task.memory) {}

    TaskName name;
    TaskStage stage;
    bool has_failed;
    bool is_cancelled;
    memory::MemoryIndex memory;
    std::size_t end_of_uses = 0;   ///< in `Figures::uses`; they begin where those of the task before end
    std::size_t end_of_edges = 0;  ///< likewise
};

/// In the order of submission.
struct PendingTasks::Figures {
    std::deque<TaskFigures> tasks;
    std::vector<UseFigures> uses;
    std::vector<EdgeFigures> edges;
    std::vector<OwnerFigures> owners;
    std::size_t num_joins = 0, num_transfers = 0;

    /// Calls `f(task, uses, edges)` for each.
    template<typename F> void for_each(F&& f) const {
        std::size_t use = 0, edge = 0;
        for (const TaskFigures& t : tasks) {
            f(t, std::span(uses).subspan(use, t.end_of_uses - use),
              std::span(edges).subspan(edge, t.end_of_edges - edge));
            use = t.end_of_uses;
            edge = t.end_of_edges;
        }
    }
    std::string text_of(const UseFigures& use) const { return use_text(use, owners[use.owner]); }
};

void PendingTasks::read_figures(Figures& f, TaskNumber last, TaskNumber last_helper,
                                const schedule::Scheduler& scheduler) {
    std::vector<Task*> pending;
    books_.table().for_each_up_to(last, last_helper, [&](Task& t) { pending.push_back(&t); });
    // Of one place helpers are first.
    const auto place_of = [](const Task* t) {
        return std::tuple(t->place(), graph::is_helper(t->number) ? 0 : 1, t->number);
    };
    std::ranges::sort(pending, {}, place_of);
    std::unordered_map<const memory::Owner*, std::uint32_t> owners;
    for (Task* const t : pending) {
        for (const Use& u : t->uses) {
            const memory::Owner& owner = *u.chunk->owner;
            const auto [known, is_new] = owners.try_emplace(&owner, static_cast<std::uint32_t>(f.owners.size()));
            if (is_new) f.owners.emplace_back(owner);
            f.uses.push_back({known->second, u.chunk->index, u.role, u});
        }
        books_.table().find(t->predecessors, [&](const graph::Predecessor& p, const Task* before) {
            if (before != nullptr) f.edges.push_back({p.number, p.data});
        });
        TaskFigures& task = f.tasks.emplace_back(*t, stage_of(*t, scheduler));
        task.end_of_uses = f.uses.size();
        task.end_of_edges = f.edges.size();
        f.num_joins += t->kind == TaskKind::join;
        f.num_transfers += t->kind == TaskKind::transfer;
    }
}

/// "kmm runtime 1: 3 tasks, 1 transfer pending"
std::string PendingTasks::title(const Figures& f) const {
    std::string counts;
    const auto add = [&](std::size_t count, const char* what) {
        if (count != 0) counts += (counts.empty() ? "" : ", ") + driver::count_text(count, what);
    };
    add(f.tasks.size() - f.num_joins - f.num_transfers, "task");
    add(f.num_transfers, "transfer");
    add(f.num_joins, "join");
    return driver::format("kmm runtime {}: {} pending", platform_.number(), counts.empty() ? "nothing is" : counts);
}

/// 7  task "axpy" chunk 3 of 10 on GPU 1: ready
std::string PendingTasks::head_text(const TaskFigures& task) const {
    std::string text = driver::format("{}  {}", number_text(task.name.number), words_.task_text(task.name));
    if (task.name.kind == TaskKind::transfer)
        text += " into " + platform_.place_text(task.memory.is_host() ? ResourceId::host()
                                                                      : ResourceId(task.memory.id().as_device()));
    text += driver::format(": {}", text_of(task.stage));
    if (task.has_failed) text += ", failed";
    if (task.is_cancelled) text += ", cancelled";
    return text;
}

std::string PendingTasks::plain_text(const Figures& f) const {
    std::string text = title(f) + "\n";
    f.for_each([&](const TaskFigures& task, std::span<const UseFigures> uses, std::span<const EdgeFigures> edges) {
        text += driver::format("  {}\n", head_text(task));
        for (const UseFigures& u : uses) text += driver::format("      {}\n", f.text_of(u));
        if (task.name.is_barrier) text += driver::format("      {}\n", barrier_text);
        for (const bool data : {true, false}) {
            std::string before;
            for (const EdgeFigures& e : edges)
                if (e.data == data) before += (before.empty() ? "" : ", ") + number_text(e.before);
            if (!before.empty()) text += driver::format("      {} {}\n", data ? "needs" : "in order after", before);
        }
    });
    return text;
}

std::string PendingTasks::dot_text(const Figures& f) const {
    std::string text = "digraph plan {\n";
    if (!f.tasks.empty())
        text += driver::format("  label=\"{}\";\n  labelloc=t;\n  node [shape=box];\n", label_line(title(f)));
    f.for_each([&](const TaskFigures& task, std::span<const UseFigures> uses, std::span<const EdgeFigures>) {
        std::string label = label_line(head_text(task));
        for (const UseFigures& u : uses) label += label_line(f.text_of(u));
        if (task.name.is_barrier) label += label_line(barrier_text);
        text += driver::format("  {} [label=\"{}\"{}];\n", node_text(task.name.number), label,
                               graph::is_helper(task.name.number) ? ", style=rounded" : "");
    });
    f.for_each([&](const TaskFigures& task, std::span<const UseFigures>, std::span<const EdgeFigures> edges) {
        for (const EdgeFigures& e : edges)
            text += driver::format("  {} -> {}{};\n", node_text(e.before), node_text(task.name.number),
                                   e.data ? "" : " [style=dashed]");
    });
    return text + "}\n";
}

// The order lock is not held any more when the thread waits for the baton. What has its place by then is published:
// once everything is read the schedule has it, and its record is complete.
std::string PendingTasks::text(PlanFormat format) {
    TaskNumber last = 0, last_helper = 0;
    {
        const locks::Guard guard(books_.order());
        last = books_.table().last();
        last_helper = books_.table().last_helper();
    }
    Figures f;
    turns_.with_everything_read(
        [&](const schedule::Scheduler& scheduler, const Outgoing&) { read_figures(f, last, last_helper, scheduler); });
    return format == PlanFormat::Dot ? dot_text(f) : plain_text(f);
}

}  // namespace kmm::detail
