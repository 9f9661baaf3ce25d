#include "kmm_plan.hpp"

#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "driver/format.hpp"
#include "driver/name_text.hpp"
#include "help.hpp"
#include "ranks/rank_planner.hpp"

namespace kmm::tools {
namespace of_ranks {
namespace {

using namespace kmm::ranks;

constexpr const char* usage = "usage: kmm plan axpy       y = a x + y\n"
                              "       kmm plan stencil    two arrays of rows, each task reads one row beside its own\n"
                              "       kmm plan product    C += A B in tiles, a submit for each k\n"
                              "       kmm plan transpose  B = A', in tiles\n"
                              "--size N     tiles along an axis (8)\n"
                              "--steps N    submits after the one that fills the arrays (1)\n"
                              "--ranks N (2) --devices N (1), of each rank\n"
                              "--rank N     what this rank plans (0), or all\n"
                              "--dot        a graph of all submits in the DOT language, else the last submit as text\n"
                              "--summary    the numbers alone\n";

struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Options {
    Options(int count, char** words) {
        const std::map<std::string, std::function<void(std::string_view)>> known = {
            {"--size", [&](std::string_view t) { size = static_cast<std::int64_t>(number("--size", t, 1, 1 << 20)); }},
            {"--steps", [&](std::string_view t) { steps = number("--steps", t, 0, 1 << 20); }},
            {"--ranks", [&](std::string_view t) { ranks = number("--ranks", t, 1, 1 << 20); }},
            {"--devices", [&](std::string_view t) { devices = number("--devices", t, 1, 1024); }},
            {"--rank",
             [&](std::string_view t) { rank = t == "all" ? every_rank : number("--rank", t, 0, every_rank - 1); }},
        };
        for (int i = 0; i < count; ++i) {
            const std::string word = words[i];
            if (word == "--dot" || word == "--summary") {
                (word == "--dot" ? as_dot : as_summary) = true;
            } else if (word.rfind("--", 0) != 0) {
                if (!what.empty())
                    throw Wrong("one program at a time, but got " + driver::in_quotes(what) + " and " +
                                driver::in_quotes(word));
                what = word;
            } else {
                const auto at = known.find(word);
                if (at == known.end()) throw Wrong("unknown option " + driver::in_quotes(word));
                if (++i == count) throw Wrong(word + " needs a value");
                at->second(words[i]);
            }
        }
        if (what.empty()) throw Wrong("say what to plan: axpy, stencil, product or transpose");
        if (rank != every_rank && rank >= ranks)
            throw Wrong(driver::format("--rank {} of {} ranks: they are numbered from 0", rank, ranks));
    }

    std::string what;
    std::int64_t size = 8;
    std::uint32_t steps = 1, ranks = 2, devices = 1, rank = 0;
    bool as_dot = false, as_summary = false;

  private:
    static std::uint32_t number(const char* name, std::string_view text, std::uint32_t least, std::uint32_t most) {
        std::uint32_t value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code != std::errc() || end != text.data() + text.size() || value < least || value > most)
            throw Wrong(driver::format("{} needs a number from {} to {}, but got {}", name, least, most,
                                       driver::in_quotes(text)));
        return value;
    }
};

/// Arrays and submits of a program; the first submit fills the arrays.
struct Rules {
    std::vector<std::string> names;
    std::vector<std::size_t> ranks;
    std::vector<Box> boxes;
    std::vector<RuleSubmit> submits;

    void add_array(const char* name, const std::vector<std::int64_t>& extents) {
        names.emplace_back(name);
        ranks.push_back(extents.size());
        Box& box = boxes.emplace_back();
        for (std::size_t k = 0; k < extents.size(); ++k) box.end[k] = extents[k];
    }
    /// One argument of the submit that is being made.
    void use(std::uint32_t array, AccessKind kind, const std::vector<AxisRule>& axes) {
        RuleAccess& a = submits.back().accesses.emplace_back();
        a.array = array;
        a.kind = kind;
        std::copy(axes.begin(), axes.end(), a.axes.begin());
    }
    void begin(const DomainRule& domain) { submits.push_back({domain, {}}); }
    void fill(const DomainRule& domain) {
        begin(domain);
        for (std::uint32_t a = 0; a < names.size(); ++a)
            use(a, AccessKind::overwrite, {AxisRule::along(0), AxisRule::along(1)});
    }
};

Rules make(const Options& o) {
    constexpr std::int64_t tile = 256;
    const std::int64_t length = o.size * tile;
    const bool is_square = o.what == "product" || o.what == "transpose";
    const std::int64_t extents[3] = {length, is_square ? length : tile, 1};
    const std::int64_t cut[3] = {tile, tile, 1};
    const DomainRule domain = DomainRule::blocks(extents, cut, std::size_t{o.ranks} * o.devices);
    const AxisRule x = AxisRule::along(0), y = AxisRule::along(1);
    Rules rules;
    const auto add_arrays = [&](std::initializer_list<const char*> names) {
        for (const char* name : names) rules.add_array(name, {extents[0], extents[1]});
        rules.fill(domain);
    };
    if (o.what == "axpy") {
        add_arrays({"x", "y"});
        for (std::uint32_t i = 0; i < o.steps; ++i) {
            rules.begin(domain);
            rules.use(0, AccessKind::read, {x, y});
            rules.use(1, AccessKind::write, {x, y});
        }
    } else if (o.what == "stencil") {
        add_arrays({"u", "v"});
        for (std::uint32_t i = 0; i < o.steps; ++i) {
            rules.begin(domain);
            rules.use(i % 2, AccessKind::read, {AxisRule::along(0, 1, -1, 3), y});
            rules.use(1 - i % 2, AccessKind::overwrite, {x, y});
        }
    } else if (o.what == "product") {
        add_arrays({"A", "B", "C"});
        for (std::int64_t k = 0; k < o.steps; ++k) {
            const AxisRule inner = AxisRule::all_of({k % o.size * tile, (k % o.size + 1) * tile});
            rules.begin(domain);
            rules.use(0, AccessKind::read, {x, inner});
            rules.use(1, AccessKind::read, {inner, y});
            rules.use(2, AccessKind::write, {x, y});
        }
    } else if (o.what == "transpose") {
        add_arrays({"A", "B"});
        for (std::uint32_t i = 0; i < o.steps; ++i) {
            rules.begin(domain);
            rules.use(i % 2, AccessKind::read, {y, x});
            rules.use(1 - i % 2, AccessKind::overwrite, {x, y});
        }
    } else {
        throw Wrong("unknown program " + driver::in_quotes(o.what) + ": axpy, stencil, product or transpose");
    }
    return rules;
}

void print_summary(std::size_t submit, const RankPlan& plan, const RankPlanner& planner, std::uint64_t looked_at) {
    std::size_t num_edges = 0;
    for (const RankTask& t : plan.tasks) num_edges += t.edges.size();
    std::int64_t elements = 0;
    for (const RankTransfer& t : plan.transfers) elements += boxes::volume(t.box);
    std::printf(
        "submit %zu: numbers %llu to %llu, %zu tasks here, %zu edges, %zu transfers of %lld elements; %llu regions "
        "computed\n",
        submit, static_cast<unsigned long long>(plan.first),
        static_cast<unsigned long long>(plan.first + plan.count - 1), plan.tasks.size(), num_edges,
        plan.transfers.size(), static_cast<long long>(elements),
        static_cast<unsigned long long>(planner.num_looked_at() - looked_at));
}

int run(const Options& o) {
    const Rules rules = make(o);
    constexpr std::size_t most_tasks = 10'000'000;
    const DomainRule& domain = rules.submits.back().domain;
    const std::size_t share = std::size_t{o.devices};
    const std::size_t first = o.rank == every_rank ? 0 : o.rank * share;
    const std::size_t end = o.rank == every_rank ? domain.num_owners() : first + share;
    if (const std::size_t tasks = domain.num_chunks_of(first, end); tasks > most_tasks)
        throw Wrong(
            driver::format("--size {} makes {} tasks of a submit here: at most {} are printed; use a smaller size "
                           "or more ranks",
                           o.size, tasks, most_tasks));
    RankPlanner planner(o.ranks, o.devices, o.rank);
    for (std::size_t a = 0; a < rules.names.size(); ++a) planner.add_array(rules.ranks[a], rules.boxes[a]);
    if (o.as_dot) std::puts("digraph plan {\n  node [shape=box];");
    for (std::size_t i = 0; i < rules.submits.size(); ++i) {
        const std::uint64_t looked_at = planner.num_looked_at();
        const std::optional<RankPlan> plan = planner.submit(rules.submits[i]);
        if (!plan) throw std::runtime_error("a submit was refused");
        if (o.as_dot)
            std::fputs(plan->to_dot(rules.names, rules.ranks).c_str(), stdout);
        else if (o.as_summary || i + 1 == rules.submits.size())
            print_summary(i, *plan, planner, looked_at);
        if (!o.as_dot && !o.as_summary && i + 1 == rules.submits.size())
            std::fputs(plan->to_text(rules.names, rules.ranks).c_str(), stdout);
    }
    if (o.as_dot) std::puts("}");
    return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace of_ranks

int plan(int count, char** words) {
    if (printed_help(count, words, of_ranks::usage)) return 0;
    try {
        return of_ranks::run(of_ranks::Options(count, words));
    } catch (const of_ranks::Wrong& error) {
        std::fprintf(stderr, "kmm plan: %s\n%s", error.what(), of_ranks::usage);
        return 2;
    }
}

}  // namespace kmm::tools
