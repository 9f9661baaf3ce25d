// The reader of traces: what it takes, and with which words it refuses the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "synthetic_trace.hpp"
#include "trace_summary.hpp"
#include "trace_texts.hpp"

namespace {

using namespace kmm::tools;

std::string refusal_of(const std::string& text) {
    try {
        read_text(text);
    } catch (const TraceError& error) {
        return error.what();
    }
    return "accepted";
}

/// The words of the refusal of a file with these events, of which the first is event 4.
std::string refusal_of_events(const std::vector<std::string>& events) { return refusal_of(file_with(events)); }

/// `text` with the first `old` replaced.
std::string with(std::string text, const std::string& old, const std::string& fresh) {
    const auto place = text.find(old);
    EXPECT_NE(place, std::string::npos) << old << " is not in " << text;
    return text.replace(place, old.size(), fresh);
}

TEST(TraceReader, a_slice_has_its_lane_times_and_arguments) {
    const Trace trace = read_text(file_with({slice("axpy", 12.345, 3.25)}));
    ASSERT_EQ(trace.slices.size(), 1u);
    const Slice& slice = trace.slices[0];
    EXPECT_DOUBLE_EQ(slice.begin_us, 12.345);
    EXPECT_DOUBLE_EQ(slice.duration_us, 3.25);
    EXPECT_EQ(trace.text(slice.name), "axpy");
    EXPECT_EQ(trace.text(slice.category), "kernel");
    EXPECT_EQ(trace.text(trace.lanes[slice.lane].name), "compute 0");
    EXPECT_EQ(trace.text(trace.processes[trace.lanes[slice.lane].process].name), "GPU 0: H200");
    EXPECT_EQ(trace.number(slice.arguments, "task"), 17);
    EXPECT_EQ(trace.num_events, 4u);
    EXPECT_EQ(trace.said("driver", "?"), "host");
}

TEST(TraceReader, names_may_come_after_what_they_name) {
    std::vector<std::string> events = {slice("axpy", 1, 1), half_of_wait("b", 1), half_of_wait("e", 2)};
    events.insert(events.end(), names.begin(), names.end());
    const Trace trace = read_text(file_of(events));
    EXPECT_EQ(trace.slices.size(), 1u);
    EXPECT_EQ(trace.waits.size(), 1u);
}

TEST(TraceReader, processes_come_by_their_sort_index_and_lanes_by_their_thread) {
    const Trace trace =
        read_text(file_with({slice("late", 5, 1, 2), slice("early", 1, 1, 1),
                             R"({"ph":"M","pid":9,"tid":0,"name":"process_name","args":{"name":"the program"}})",
                             R"({"ph":"M","pid":9,"tid":0,"name":"process_sort_index","args":{"sort_index":1}})",
                             R"({"ph":"M","pid":9,"tid":4,"name":"thread_name","args":{"name":"submits"}})"}));
    ASSERT_EQ(trace.processes.size(), 2u);
    EXPECT_EQ(trace.text(trace.processes[0].name), "the program");
    ASSERT_EQ(trace.lanes.size(), 3u);
    EXPECT_EQ(trace.text(trace.lanes[0].name), "submits");
    EXPECT_EQ(trace.text(trace.lanes[1].name), "compute 0");
    EXPECT_EQ(trace.text(trace.slices[0].name), "early");
    EXPECT_EQ(trace.slices[1].lane, 2u);
}

TEST(TraceReader, equal_texts_have_one_number_however_many_there_are) {
    Texts texts;
    for (int round = 0; round < 2; ++round)
        for (TextId i = 0; i < 5000; ++i) ASSERT_EQ(texts.add("text " + std::to_string(i)), i);
    EXPECT_EQ(texts.size(), 5000u);
    EXPECT_EQ(texts[0], "text 0");
    EXPECT_EQ(texts[4999], "text 4999");
    EXPECT_EQ(texts[texts.add("")], "");
}

TEST(TraceReader, unknown_keys_are_allowed_everywhere) {
    EXPECT_EQ(refusal_of(with(file_with({with(slice("axpy", 1, 1), "\"cat\"", R"("cname":[{"a":[1]}],"cat")")}),
                              "\"traceEvents\"", R"("more":{"ph":[1,{"x":2}]},"traceEvents")")),
              "accepted");
}

TEST(TraceReader, slices_nest_and_know_how_deep) {
    const Trace trace = read_text(
        file_with({slice("inner", 2, 2), slice("outer", 1, 9), slice("innermost", 2, 1), slice("next", 10, 1)}));
    std::vector<std::string> seen;
    for (const Slice& slice : trace.slices)
        seen.push_back(std::string(trace.text(slice.name)) + " " + std::to_string(slice.depth));
    EXPECT_EQ(seen, (std::vector<std::string>{"outer 0", "inner 1", "innermost 2", "next 0"}));
}

TEST(TraceReader, rounding_to_a_nanosecond_is_no_overlap) {
    EXPECT_EQ(refusal_of_events({slice("a", 1, 2.001), slice("b", 3, 1)}), "accepted");
    EXPECT_EQ(refusal_of_events({slice("outer", 1.001, 9), slice("inner", 1, 5)}), "accepted");
    EXPECT_NE(refusal_of_events({slice("a", 1, 2.003), slice("b", 3, 1)}), "accepted");
}

TEST(TraceReader, waits_of_one_id_are_paired_in_the_order_of_time) {
    const Trace trace =
        read_text(file_with({half_of_wait("e", 9), half_of_wait("b", 5), half_of_wait("b", 1), half_of_wait("e", 2)}));
    ASSERT_EQ(trace.waits.size(), 2u);
    EXPECT_EQ(trace.waits[0].begin_us, 1);
    EXPECT_EQ(trace.waits[0].end_us, 2);
    EXPECT_EQ(trace.waits[1].begin_us, 5);
    EXPECT_EQ(trace.waits[1].end_us, 9);
    EXPECT_EQ(trace.number(trace.waits[0].arguments, "bytes"), 4096);
}

TEST(TraceReader, a_wait_that_is_not_a_pair_is_refused_unless_events_were_dropped) {
    const std::vector<std::string> events = {half_of_wait("b", 1), half_of_wait("e", 2), half_of_wait("b", 5),
                                             half_of_wait("e", 4, 18)};
    EXPECT_EQ(refusal_of_events({half_of_wait("b", 1)}),
              "t.json: event 4 (\"axpy\"): begins \"wait for memory\" of id 17, which does not end");
    EXPECT_EQ(refusal_of_events({half_of_wait("e", 1)}),
              "t.json: event 4 (\"axpy\"): ends \"wait for memory\" of id 17, which has not begun");
    EXPECT_EQ(
        refusal_of_events({half_of_wait("b", 1), half_of_wait("b", 2), half_of_wait("e", 3)}),
        "t.json: event 4 (\"axpy\"): begins \"wait for memory\" of id 17, which does not end before event 5 begins "
        "it again");
    const Trace trace = read_text(file_with(events, "3"));
    EXPECT_EQ(trace.waits.size(), 1u);
    EXPECT_EQ(trace.num_unpaired, 2u);
}

TEST(TraceReader, a_wait_ends_under_the_name_under_which_it_began) {
    EXPECT_EQ(
        refusal_of_events({half_of_wait("b", 1), half_of_wait("e", 2, 17, "scale")}),
        "t.json: event 5 (\"scale\"): ends \"wait for memory\" of id 17, which event 4 began under the name \"axpy\"");
}

TEST(TraceReader, slices_that_overlap_in_part_are_refused_on_one_lane_and_not_on_two) {
    EXPECT_EQ(refusal_of_events({slice("a", 1, 4), slice("b", 3, 5, 2)}), "accepted");
    EXPECT_EQ(
        refusal_of_events({slice("a", 1, 4), slice("b", 3, 5)}),
        "t.json: event 5 (\"b\"): overlaps event 4 (\"a\") in part, on lane \"compute 0\" of \"GPU 0: H200\": 3.000 us "
        "to 8.000 us and 1.000 us to 5.000 us; slices of a lane nest or follow each other");
    // Beside an inner slice that has ended.
    EXPECT_NE(refusal_of_events({slice("a", 1, 9), slice("b", 2, 1), slice("c", 8, 5)}), "accepted");
}

TEST(TraceReader, what_has_no_name_is_refused) {
    EXPECT_EQ(refusal_of(file_of({names[0], slice("a", 1, 1)})),
              "t.json: event 2: thread 1 of process 3 has no name: there is no event \"thread_name\" with this \"pid\" "
              "and \"tid\"");
    EXPECT_EQ(refusal_of(file_of({names[1], slice("a", 1, 1)})),
              "t.json: event 2: process 3 has no name: there is no event \"process_name\" with this \"pid\"");
    EXPECT_EQ(refusal_of_events({with(mark("fail", 1, ""), "\"tid\":0", "\"tid\":7")}),
              "t.json: event 4: thread 7 of process 3 has no name: there is no event \"thread_name\" with this \"pid\" "
              "and \"tid\"");
    EXPECT_EQ(refusal_of_events({with(names[1], "compute 0", "compute 1")}),
              "t.json: event 4 (\"thread_name\"): gives the name \"compute 1\" to thread 1 of process 3, which has the "
              "name \"compute 0\"");
    EXPECT_EQ(refusal_of_events({with(names[1], "\"compute 0\"", "5")}),
              "t.json: event 4 (\"thread_name\"): its \"args\" have no text \"name\"");
}

TEST(TraceReader, a_field_that_is_missing_is_refused_by_its_name) {
    for (const char* key : {"ph", "name", "cat", "ts", "dur", "pid", "tid"}) {
        const std::string text =
            refusal_of_events({with(slice("axpy", 1, 1), "\"" + std::string(key) + "\"", "\"other\"")});
        const std::string event = std::string(key) == "name" || std::string(key) == "ph" ? "" : " (\"axpy\")";
        EXPECT_NE(text.find("has no \"" + std::string(key) + "\""), std::string::npos) << key << ": " << text;
        EXPECT_EQ(text.find("t.json: event 4" + event), 0u) << text;
    }
    EXPECT_EQ(refusal_of_events({with(half_of_wait("b", 1), "\"id\"", "\"other\"")}),
              "t.json: event 4 (\"axpy\"): has no \"id\"");
    EXPECT_EQ(refusal_of_events({with(mark("evict", 1, "\"bytes\":1"), "\"s\"", "\"other\"")}),
              "t.json: event 4 (\"x[3]\"): has no \"s\"");
}

TEST(TraceReader, a_field_of_the_wrong_type_is_refused_by_its_name) {
    const std::string good = slice("axpy", 1.5, 2.5);
    EXPECT_EQ(refusal_of_events({with(good, ":1.5", ":\"1.5\"")}), "t.json: event 4: \"ts\" is not a number");
    EXPECT_EQ(refusal_of_events({with(good, ":2.5", ":null")}), "t.json: event 4: \"dur\" is not a number");
    EXPECT_EQ(refusal_of_events({with(good, ":2.5", ":[2.5]")}), "t.json: event 4: \"dur\" is not a number");
    EXPECT_EQ(refusal_of_events({with(good, "\"pid\":3", "\"pid\":3.5")}),
              "t.json: event 4: \"pid\" is not a whole number");
    EXPECT_EQ(refusal_of_events({with(good, "\"axpy\"", "7")}), "t.json: event 4: \"name\" is not a text");
    EXPECT_EQ(refusal_of_events({with(good, "{\"task\":17}", "17")}), "t.json: event 4: \"args\" is not an object");
    EXPECT_EQ(refusal_of_events({with(good, "17}", "[17]}")}),
              "t.json: event 4: \"task\" of its \"args\" is a list; numbers and texts are known");
    EXPECT_EQ(refusal_of_events({with(good, "\"cat\"", "\"ts\":3,\"cat\"")}), "t.json: event 4: has \"ts\" twice");
}

TEST(TraceReader, times_are_within_63_years_and_no_slice_ends_before_it_begins) {
    EXPECT_EQ(refusal_of_events({slice("axpy", 5, -1)}),
              "t.json: event 4 (\"axpy\"): \"dur\" is -1.000 us: it would end before it begins");
    EXPECT_EQ(refusal_of_events({slice("axpy", 5, 0)}), "accepted");
    EXPECT_EQ(refusal_of_events({with(slice("axpy", 5, 1), ":5,", ":1e999,")}),
              "t.json: event 4: is not JSON (number overflow parsing '1e999')");
    EXPECT_EQ(refusal_of_events({slice("axpy", 2e15, 2e15)}), "accepted");
    EXPECT_EQ(refusal_of_events({slice("axpy", 1.5e308, 1)}),
              "t.json: event 4 (\"axpy\"): \"ts\" is 1.5e+308 us: no time is longer than 63 years");
    EXPECT_EQ(refusal_of_events({slice("axpy", 0, 1e16)}),
              "t.json: event 4 (\"axpy\"): \"dur\" is 1e+16 us: no time is longer than 63 years");
}

TEST(TraceReader, only_known_phases_and_scopes_are_taken) {
    EXPECT_EQ(refusal_of_events({with(slice("axpy", 1, 1), "\"X\"", "\"B\"")}),
              "t.json: event 4 (\"axpy\"): its phase \"ph\" is \"B\": known are M, X, C, b, e and i");
    EXPECT_EQ(refusal_of_events({with(mark("fail", 1, ""), "\"s\":\"p\"", "\"s\":\"q\"")}),
              "t.json: event 4 (\"x[3]\"): its scope \"s\" is \"q\": known are g, p and t");
}

TEST(TraceReader, counters_have_numbers) {
    const std::string good = R"({"ph":"C","pid":3,"tid":0,"name":"memory","ts":1,"args":{"in use":7,"held":8.5}})";
    const Trace trace = read_text(file_with({good}));
    ASSERT_EQ(trace.samples.size(), 1u);
    EXPECT_EQ(trace.number(trace.samples[0].arguments, "in use"), 7);
    EXPECT_EQ(trace.number(trace.samples[0].arguments, "held"), 8.5);
    EXPECT_EQ(refusal_of_events({with(good, ":7", ":\"7\"")}),
              "t.json: event 4 (\"memory\"): the counter's value \"in use\" is no number");
    EXPECT_EQ(refusal_of_events({with(good, R"("in use":7,"held":8.5)", "")}),
              "t.json: event 4 (\"memory\"): a counter without values in \"args\"");
}

TEST(TraceReader, samples_and_marks_of_one_time_stay_in_the_order_of_the_file) {
    std::vector<std::string> events;
    for (int i = 0; i < 200; ++i) {
        events.push_back(R"({"ph":"C","pid":3,"tid":0,"name":"memory","ts":1,"args":{"in use":)" + std::to_string(i) +
                         "}}");
        events.push_back(mark("note", 1, "\"i\":" + std::to_string(i)));
    }
    const Trace trace = read_text(file_with(events));
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(trace.number(trace.samples[static_cast<std::size_t>(i)].arguments, "in use"), i);
        ASSERT_EQ(trace.number(trace.marks[static_cast<std::size_t>(i)].arguments, "i"), i);
    }
}

TEST(TraceReader, copies_and_evictions_say_how_many_bytes_and_copies_where) {
    const std::string good =
        with(with(slice("x[3]", 1, 1), "kernel", "copy"), "\"task\":17", R"("bytes":64,"from":"host","to":"GPU 0")");
    EXPECT_EQ(refusal_of_events({good}), "accepted");
    EXPECT_EQ(refusal_of_events({with(good, "\"bytes\"", "\"size\"")}),
              "t.json: event 4 (\"x[3]\"): a copy whose \"args\" have no number \"bytes\"");
    EXPECT_EQ(refusal_of_events({with(good, "\"to\":\"GPU 0\"", "\"to\":0")}),
              "t.json: event 4 (\"x[3]\"): a copy whose \"args\" have no text \"to\", the name of a memory");
    EXPECT_EQ(refusal_of_events({mark("evict", 1, "\"saved\":true")}),
              "t.json: event 4 (\"x[3]\"): an eviction whose \"args\" have no number \"bytes\"");
}

TEST(TraceReader, what_is_no_trace_is_refused) {
    EXPECT_EQ(refusal_of("[]"),
              "t.json: is a list and not an object with a list \"traceEvents\": a runtime does not write that");
    EXPECT_EQ(refusal_of("7"), "t.json: is no trace: it is not an object with a list \"traceEvents\"");
    EXPECT_EQ(refusal_of("{}"), "t.json: is no trace: it has no list \"traceEvents\"");
    EXPECT_EQ(refusal_of(R"({"traceEvents":{}})"), "t.json: is no trace: its \"traceEvents\" is no list");
    EXPECT_EQ(refusal_of(file_of({"5"})), "t.json: event 1: is not an object");
    EXPECT_EQ(refusal_of(file_of({"[]"})), "t.json: event 1: is a list and not an object");
    EXPECT_EQ(refusal_of("").find("t.json: is empty"), 0u) << refusal_of("");
    const std::string broken = refusal_of_events({"{\"ph\":\"X\" \"pid\":3}"});
    EXPECT_EQ(broken.find("t.json: event 4: is not JSON (parse error at line 5"), 0u) << broken;
}

TEST(TraceReader, a_file_that_was_cut_off_is_read_as_far_as_it_goes_and_says_so) {
    const std::string whole = file_with({slice("axpy", 1, 1), half_of_wait("b", 1), half_of_wait("e", 2)});
    const std::size_t begin = whole.find('[') + 1, end = whole.rfind('}');
    std::uint64_t num_events = 0;
    for (std::size_t length = 2; length <= end; ++length) {
        const std::string text = whole.substr(0, length);
        if (length < begin) {
            ASSERT_NE(refusal_of(text).find("the file ends before the trace does"), std::string::npos) << length;
            continue;
        }
        const Trace trace = read_text(text);
        ASSERT_TRUE(trace.is_cut_off) << length;
        ASSERT_GE(trace.num_events, num_events) << length;
        num_events = trace.num_events;
        ASSERT_NE(summary_of(trace).find("INCOMPLETE: the file ends before the trace does"), std::string::npos);
    }
    const Trace all = read_text(whole);
    EXPECT_EQ(num_events, all.num_events) << "nothing is missing but the end of the list";
    EXPECT_FALSE(all.is_cut_off);
}

TEST(TraceReader, a_file_that_was_cut_off_before_a_name_has_a_number_in_its_place) {
    const std::string whole = file_of({slice("axpy", 1, 1), slice("axpy", 3, 1)});
    const Trace trace = read_text(whole.substr(0, whole.rfind("axpy")));
    EXPECT_TRUE(trace.is_cut_off);
    ASSERT_EQ(trace.lanes.size(), 1u);
    EXPECT_EQ(trace.text(trace.lanes[0].name).find("thread "), 0u) << trace.text(trace.lanes[0].name);
}

TEST(TraceReader, a_refusal_has_at_most_200_bytes_of_a_name) {
    const std::string name(100'000, 'n');
    EXPECT_LE(refusal_of_events({slice(name, 1, -2)}).size(), 400u);
    EXPECT_LE(refusal_of_events({"{\"ph\":\"" + name + "\",\"name\":\"x\"}"}).size(), 400u);
    EXPECT_LE(refusal_of("{\"traceEvents\":[{\"" + name + "\":1 \"" + name + "\"}]}").size(), 600u);
    EXPECT_LE(refusal_of("{\"traceEvents\":[{\"args\":{\"" + name + "\":[]}}]}").size(), 400u);
}

TEST(TraceReader, an_empty_trace_is_one) {
    const Trace trace = read_text(file_of({}));
    EXPECT_EQ(trace.num_events, 0u);
    EXPECT_EQ(trace.duration_us(), 0);
    EXPECT_NE(summary_of(trace).find("0 events"), std::string::npos);
}

TEST(TraceReader, the_summary_counts_bytes_busy_lanes_evictions_and_waits) {
    const std::string up = with(with(slice("x[3]", 0, 25, 2), "kernel", "copy"), "\"task\":17",
                                R"("bytes":1048576,"from":"host","to":"GPU 0")");
    const Trace trace = read_text(file_with(
        {slice("axpy", 0, 50), slice("inside", 10, 5), slice("axpy", 75, 25), up,
         mark("evict", 3, R"("bytes":2048,"saved":true)"), mark("evict", 4, R"("bytes":1024,"saved":false)"),
         mark("fail", 5, R"("task":17,"error":"index 7 of 4")"), half_of_wait("b", 10), half_of_wait("e", 40)}));
    const std::string text = summary_of(trace);
    const auto has = [&](const std::string& words) {
        std::string single;
        std::unique_copy(text.begin(), text.end(), std::back_inserter(single),
                         [](char a, char b) { return a == ' ' && b == ' '; });
        return single.find(words) != std::string::npos;
    };
    EXPECT_TRUE(has("12 events in 100.000 us")) << text;
    EXPECT_TRUE(has(" kernel 3 80.000 us 26.667 us 50.000 us\n")) << text;
    EXPECT_TRUE(has(" compute 0 2 75.000 us 75.0%\n")) << text;
    EXPECT_TRUE(has(" up 1 25.000 us 25.0%\n")) << text;
    EXPECT_TRUE(has(" up 1 1.00 MiB 39.06 GiB/s\n")) << text;
    EXPECT_TRUE(has("evictions: 2, 3.00 KiB (saved: 1, 2.00 KiB)\n")) << text;
    EXPECT_TRUE(has("fail: 1, the first at 5.000 us: x[3]: index 7 of 4\n")) << text;
    EXPECT_TRUE(has("wait for memory: 1, 30.000 us in all, the longest 30.000 us (\"axpy\", id 17, at 10.000 us)\n"))
        << text;
}

TEST(TraceReader, a_synthetic_trace_of_two_devices_is_whole) {
    const Trace trace = read_text(synthetic_trace(400, 2));
    EXPECT_EQ(trace.processes.size(), 4u);
    EXPECT_GT(trace.slices.size(), 1500u);
    EXPECT_GT(trace.waits.size(), 100u);
    EXPECT_GT(trace.marks.size(), 100u);
    EXPECT_GT(trace.samples.size(), 300u);
}

}  // namespace
