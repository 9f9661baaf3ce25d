// What plan_text() says of tasks that are held pending, and that it is whole while other threads submit.
#include <regex>
#include <set>
#include <sstream>

#include "harness.hpp"

namespace {

using kmm::DeviceResource;
using kmm::GPUSubview;
using kmm::GPUView;
using kmm::GPUViewMut;
using kmm::PlanFormat;
using kmm::Subview;
using kmm::SubviewMut;
using kmm::View;
using kmm::ViewMut;
using Numbers = Array<std::int64_t>;

constexpr std::int64_t n = 8;  // elements of an array

/// A runtime, and a task that runs until the gate opens.
struct Held {
    RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Gate gate, inside;
    OpenAtEnd open{gate};

    Numbers array(const std::string& name, std::int64_t chunk = n) const {
        return rt.array<std::int64_t>(n, Dim<1>(chunk)).named(name);
    }
    auto held() const {
        return Host([inside = inside, gate = gate](auto&&...) {
            inside.open();
            gate.wait();
        });
    }
    /// Behind "kmm runtime N: ".
    std::string text() const {
        const std::string whole = rt.plan_text();
        const std::size_t colon = whole.find(": ");
        EXPECT_EQ(whole.find("kmm runtime "), 0u) << whole;
        return colon == std::string::npos ? whole : whole.substr(colon + 2);
    }
    std::string dot() const { return rt.plan_text(PlanFormat::Dot); }
};

std::string text_from(const std::string& text, const std::string& begin) {
    const std::size_t at = text.find(begin);
    return at == std::string::npos ? text : text.substr(at);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// As many tasks as the first line counts, and no edge from a task that is not listed.
void expect_whole_text(const std::string& text) {
    std::set<std::string> listed;
    std::size_t counted = 0;
    const std::vector<std::string> lines = lines_of(text);
    ASSERT_FALSE(lines.empty());
    const std::regex count("([0-9]+) (task|transfer|join)"), head("  (h?[0-9]+)  .*: .*"), number("h?[0-9]+");
    for (std::sregex_iterator i(lines[0].begin(), lines[0].end(), count), end; i != end; ++i)
        counted += std::stoul((*i)[1]);
    std::smatch match;
    for (const std::string& line : lines) {
        if (!std::regex_match(line, match, head)) continue;
        EXPECT_TRUE(listed.insert(match[1]).second) << text;
    }
    EXPECT_EQ(listed.size(), counted) << text;
    for (const std::string& line : lines) {
        if (line.find("      needs ") != 0 && line.find("      in order after ") != 0) continue;
        for (std::sregex_iterator i(line.begin(), line.end(), number), end; i != end; ++i)
            EXPECT_EQ(listed.count(i->str()), 1u) << i->str() << " in\n" << text;
    }
}

/// Statements of Graphviz' grammar, one a line; edges between nodes of the graph.
void expect_valid_dot(const std::string& dot) {
    const std::string quoted = R"re("(?:[^"\\]|\\["\\l])*")re", id = "([th][0-9]+)";
    const std::regex attribute("  (?:label=" + quoted + "|labelloc=t|node \\[shape=box\\]);");
    const std::regex node("  " + id + " \\[label=" + quoted + "(?:, style=rounded)?\\];");
    const std::regex edge("  " + id + " -> " + id + "(?: \\[style=dashed\\])?;");
    std::set<std::string> nodes;
    std::vector<std::string> lines = lines_of(dot);
    ASSERT_GE(lines.size(), 2u);
    EXPECT_EQ(lines.front(), "digraph plan {");
    EXPECT_EQ(lines.back(), "}");
    for (std::size_t i = 1; i + 1 < lines.size(); i++) {
        std::smatch match;
        if (std::regex_match(lines[i], attribute)) continue;
        if (std::regex_match(lines[i], match, node)) {
            EXPECT_TRUE(nodes.insert(match[1]).second) << dot;
        } else if (std::regex_match(lines[i], match, edge)) {
            EXPECT_EQ(nodes.count(match[1]) + nodes.count(match[2]), 2u) << lines[i] << " in\n" << dot;
        } else {
            ADD_FAILURE() << "no statement: " << lines[i];
        }
    }
}

TEST(PlanText, what_needs_the_data_of_another_task_comes_after_it) {
    const Held h;
    Numbers x = h.array("x"), y = h.array("y");
    h.rt.submit(host(), h.held().named("fill"), overwrite(x));
    h.rt.submit(device(0), GPU([](DeviceResource&, GPUView<std::int64_t>, GPUViewMut<std::int64_t>) {}).named("double"),
                x, overwrite(y));
    h.rt.submit(host(), Host([](ViewMut<std::int64_t>) {}).named("add"), write(y));
    h.inside.wait();
    EXPECT_EQ(h.text(), "3 tasks pending\n"
                        "  1  task \"fill\" chunk 0 of 1 on the host: running\n"
                        "      overwrites \"x\" chunk 0 of 1\n"
                        "  2  task \"double\" chunk 0 of 1 on virtual GPU 0: waiting\n"
                        "      reads \"x\" chunk 0 of 1\n"
                        "      overwrites \"y\" chunk 0 of 1\n"
                        "      needs 1\n"
                        "  3  task \"add\" chunk 0 of 1 on the host: waiting\n"
                        "      writes \"y\" chunk 0 of 1\n"
                        "      needs 2\n");
    const std::string dot = h.dot();
    EXPECT_EQ(text_from(dot, "  labelloc"),
              "  labelloc=t;\n"
              "  node [shape=box];\n"
              "  t1 [label=\"1  task \\\"fill\\\" chunk 0 of 1 on the host: running\\l"
              "overwrites \\\"x\\\" chunk 0 of 1\\l\"];\n"
              "  t2 [label=\"2  task \\\"double\\\" chunk 0 of 1 on virtual GPU 0: waiting\\l"
              "reads \\\"x\\\" chunk 0 of 1\\loverwrites \\\"y\\\" chunk 0 of 1\\l\"];\n"
              "  t3 [label=\"3  task \\\"add\\\" chunk 0 of 1 on the host: waiting\\l"
              "writes \\\"y\\\" chunk 0 of 1\\l\"];\n"
              "  t1 -> t2;\n"
              "  t2 -> t3;\n"
              "}\n");
    expect_valid_dot(dot);
}

TEST(PlanText, a_write_after_a_read_is_an_edge_of_order_only) {
    const Held h;
    Numbers x = h.array("x");
    h.rt.submit(host(), Host([](ViewMut<std::int64_t>) {}).named("fill"), overwrite(x));
    h.rt.synchronize();
    h.rt.submit(host(), h.held().named("read"), x);
    h.rt.submit(host(), Host([](ViewMut<std::int64_t>) {}).named("replace"), overwrite(x));
    h.inside.wait();
    EXPECT_EQ(h.text(), "2 tasks pending\n"
                        "  3  task \"read\" chunk 0 of 1 on the host: running\n"
                        "      reads \"x\" chunk 0 of 1\n"
                        "  4  task \"replace\" chunk 0 of 1 on the host: waiting\n"
                        "      overwrites \"x\" chunk 0 of 1\n"
                        "      in order after 3\n");
    EXPECT_NE(h.dot().find("  t3 -> t4 [style=dashed];\n"), std::string::npos) << h.dot();
    expect_valid_dot(h.dot());
}

TEST(PlanText, transfers_of_regions_across_chunks_stand_where_they_happen) {
    const Held h;
    Numbers x = h.array("x", 4), y = h.array("y", 4);
    h.rt.submit(host(), h.held().named("fill"), overwrite(x));
    h.rt.submit(host(), Host([](Subview<std::int64_t>, SubviewMut<std::int64_t>) {}).named("middle"),
                x[kmm::range(2, 6)], overwrite(y[kmm::range(2, 6)]));
    h.inside.wait();
    const std::string text = h.text();
    EXPECT_EQ(text.substr(0, text.find("  h5")),
              "2 tasks, 5 transfers, 2 joins pending\n"
              "  1  task \"fill\" chunk 0 of 1 on the host: running\n"
              "      overwrites the temporary {0...8} of \"x\"\n"
              "  h1  a transfer for task \"fill\" chunk 0 of 1 into the host: waiting\n"
              "      overwrites \"x\" chunk 0 of 2\n"
              "      copies from the temporary {0...8} of \"x\"\n"
              "      needs 1\n"
              "  h2  a transfer for task \"fill\" chunk 0 of 1 into the host: waiting\n"
              "      overwrites \"x\" chunk 1 of 2\n"
              "      copies from the temporary {0...8} of \"x\"\n"
              "      needs 1\n"
              "  2  the join 2: waiting\n"
              "      needs h1, h2, 1\n"
              "  h3  a transfer for task \"middle\" chunk 0 of 1 into the host: waiting\n"
              "      overwrites the temporary {2...6} of \"x\"\n"
              "      copies from \"x\" chunk 0 of 2\n"
              "      copies from \"x\" chunk 1 of 2\n"
              "      needs h1, h2\n"
              "  3  task \"middle\" chunk 0 of 1 on the host: waiting\n"
              "      reads the temporary {2...6} of \"x\"\n"
              "      overwrites the temporary {2...6} of \"y\"\n"
              "      needs h3\n"
              "  h4  a transfer for task \"middle\" chunk 0 of 1 into the host: waiting\n"
              "      writes \"y\" chunk 0 of 2\n"
              "      copies from the temporary {2...6} of \"y\"\n"
              "      needs 3\n");
    const std::string dot = h.dot();
    expect_valid_dot(dot);
    EXPECT_NE(dot.find("  h3 -> t3;\n"), std::string::npos) << dot;
    EXPECT_NE(dot.find(" of \\\"x\\\"\\lcopies from \\\"x\\\" chunk 0 of 2\\lcopies from"), std::string::npos) << dot;
}

TEST(PlanText, a_region_across_chunks_that_a_device_reads_names_its_parts) {
    const Held h;
    Numbers x = h.array("x", 4);
    h.rt.submit(host(), h.held().named("left"), overwrite(x[kmm::range(0, 4)]));
    h.rt.submit(host(), h.held().named("right"), overwrite(x[kmm::range(4, 8)]));
    h.rt.submit(device(0), GPU([](DeviceResource&, GPUSubview<std::int64_t>) {}).named("middle"), x[kmm::range(2, 6)]);
    h.inside.wait();
    EXPECT_EQ(text_from(h.text(), "  3"), "  3  task \"middle\" chunk 0 of 1 on virtual GPU 0: waiting\n"
                                          "      reads {2...6} of \"x\" across chunks\n"
                                          "      reads a part of \"x\" chunk 0 of 2\n"
                                          "      reads a part of \"x\" chunk 1 of 2\n"
                                          "      needs 1, 2\n");
}

TEST(PlanText, a_submit_of_several_tasks_and_a_barrier_end_in_joins) {
    const Held h;
    Numbers x = h.array("x", 4);
    h.rt.submit(host(), h.held().named("first"));
    const EventId all = h.rt.parallel_submit(Dim<1>(n), Dim<1>(4), h.held().named("fill"), _x, overwrite(x[_x]));
    h.rt.barrier();
    h.inside.wait();
    const std::string text = h.text();
    EXPECT_EQ(text.find("3 tasks, 2 joins pending\n"), 0u) << text;
    EXPECT_EQ(all.get() & 0xffff, 4u);
    EXPECT_EQ(text_from(text, "  4"), "  4  the join 4: waiting\n"
                                      "      needs 2, 3\n"
                                      "  5  the barrier 5: waiting\n"
                                      "      in order after all tasks before it\n");
    expect_valid_dot(h.dot());
}

TEST(PlanText, a_task_that_will_not_run_for_a_failure_says_so) {
    const Held h;
    Numbers x = h.array("x");
    const EventId bad = h.rt.submit(
        host(), Host([](ViewMut<std::int64_t>) { throw std::runtime_error("on purpose"); }).named("bad"), overwrite(x));
    const EventId held = h.rt.submit(host(), h.held().named("held"));
    (void)thrown_by<kmm::TaskError>([&] { h.rt.wait(bad); });
    h.rt.join(held, h.rt.submit(host(), Host([](View<std::int64_t>) {}).named("read"), x));
    h.inside.wait();
    EXPECT_NE(h.text().find("  4  the join 4: waiting, cancelled\n      needs 2\n"), std::string::npos) << h.text();
}

TEST(PlanText, where_nothing_is_pending_the_text_says_so_and_the_digraph_is_empty) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        for (int i = 0; i < 3; i++) {
            const std::string text = rt.plan_text();
            EXPECT_EQ(text_from(text, ": "), ": nothing is pending\n");
            EXPECT_EQ(rt.plan_text(PlanFormat::Dot), "digraph plan {\n}\n");
            if (i == 1) rt.close();
            if (i == 0) rt.submit(host(), Host([] {})), rt.synchronize();
        }
    });
}

TEST(PlanText, quotes_backslashes_newlines_and_ampersands_in_names_are_escaped_in_dot) {
    const Held h;
    Numbers x = h.array("a \"b\" \\l &lt; \n}");
    h.rt.submit(host(), h.held().named("\"]; t9 -> t10; \\"), overwrite(x));
    h.inside.wait();
    const std::string dot = h.dot();
    expect_valid_dot(dot);
    EXPECT_NE(dot.find(R"(task \"\"]; t9 -> t10; \\\" chunk 0 of 1)"), std::string::npos) << dot;
    EXPECT_NE(dot.find(R"(overwrites \"a \"b\" \\l &amp;lt; \l}\" chunk 0 of 1)"), std::string::npos) << dot;
    EXPECT_NE(h.text().find("overwrites \"a \"b\" \\l &lt; \n}\" chunk 0 of 1\n"), std::string::npos) << h.text();
}

TEST(PlanText, a_task_may_ask_for_it_and_finds_itself_running) {
    const Held h;
    auto said = std::make_shared<std::string>();
    h.rt.wait(h.rt.submit(host(), Host([rt = &h.rt, said] { *said = rt->plan_text(); }).named("asks")));
    EXPECT_NE(said->find("  1  task \"asks\" chunk 0 of 1 on the host: running\n"), std::string::npos) << *said;
}

TEST(PlanText, an_array_that_is_gone_is_named_while_tasks_use_it) {
    const Held h;
    {
        Numbers x = h.array("gone");
        h.rt.submit(host(), h.held().named("fill"), overwrite(x));
    }
    h.inside.wait();
    EXPECT_NE(h.text().find("overwrites \"gone\" chunk 0 of 1\n"), std::string::npos) << h.text();
}

// The texts are looked at afterwards: to ThreadSanitizer regular expressions of several threads race inside libstdc++.
TEST(PlanText, it_is_whole_while_threads_submit_and_tasks_run) {
    RuntimeConfig config = config_with(2);
    config.max_pending_tasks = 100;
    const RuntimeHandle rt = kmm::make_runtime(config);
    constexpr std::size_t num_readers = 2, num_submitters = 3;
    const int reads = repeat(100, 30);
    std::atomic<std::size_t> reading{num_readers};
    std::vector<std::string> texts[num_readers], dots[num_readers];
    std::vector<std::future<void>> threads;
    for (std::size_t thread = 0; thread < num_submitters; thread++)
        threads.push_back(std::async(std::launch::async, [&rt, &reading] {
            const auto fill = [](kmm::Range<std::int64_t>, SubviewMut<std::int64_t>) {};
            const auto middle = [](Subview<std::int64_t>) {};
            const auto touch = [](DeviceResource&, GPUSubview<std::int64_t>) {};
            while (reading != 0) {
                Numbers x = rt.array<std::int64_t>(n, Dim<1>(2));
                rt.parallel_submit(Dim<1>(n), Dim<1>(2), Host(fill), _x, overwrite(x[_x]));
                rt.submit(host(), Host(middle), x[kmm::range(1, 7)]);
                rt.submit(device(0), GPU(touch), x[kmm::range(3, 5)]);
                rt.parallel_submit(Dim<1>(n), Dim<1>(2), Host(fill), _x, write(x[_x]));
            }
        }));
    for (std::size_t thread = 0; thread < num_readers; thread++)
        threads.push_back(std::async(std::launch::async, [&, thread] {
            const std::shared_ptr<void> at_end(nullptr, [&reading](void*) { reading--; });
            for (int i = 0; i < reads; i++) {
                texts[thread].push_back(rt.plan_text());
                dots[thread].push_back(rt.plan_text(PlanFormat::Dot));
            }
        }));
    for (std::future<void>& thread : threads) thread.get();
    rt.synchronize();
    for (std::size_t thread = 0; thread < num_readers; thread++) {
        for (const std::string& text : texts[thread]) expect_whole_text(text);
        for (const std::string& dot : dots[thread]) expect_valid_dot(dot);
    }
}

}  // namespace
