// benchmarks/utilities/log_parser.hpp: the logs of every release, and what is no log.
#include "benchmarks/utilities/log_parser.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "temporary_folder.hpp"

namespace {

using namespace rmm::detail;

std::vector<event> parse(const std::string& text) {
    rmm_test::temporary_folder folder;
    std::ofstream(folder / "log.csv") << text;
    return parse_csv(folder / "log.csv");
}

const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";

std::string refusal(const std::string& text) {
    try {
        (void)parse(text);
    } catch (const rmm::logic_error& e) {
        const std::string what = e.what();
        return what.substr(what.find(", line"));
    }
    return "none";
}

TEST(LogParser, reads_every_field) {
    const auto events = parse(header + "2467,00:56:53.652380,allocate,0x19b29300,100,0\n" +
                              "2468,00:56:53.652381,free,0x19b29300,100,0x7f00aa\n" +
                              "2467,00:56:53.652382,allocate failure,(nil),1099511627776,0x2\n");
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0], (event{action::ALLOCATE, 100, std::uintptr_t{0x19b29300}}));
    EXPECT_EQ(events[1], (event{action::FREE, 100, reinterpret_cast<void*>(0x19b29300)}));
    EXPECT_EQ(events[2], (event{action::ALLOCATE_FAILURE, std::size_t{1} << 40, nullptr}));
    EXPECT_NE(events[0], events[1]);
    EXPECT_EQ(events[0].thread_id, 2467u);
    EXPECT_EQ(events[1].thread_id, 2468u);
    EXPECT_EQ(events[1].stream, 0x7f00aau);
    EXPECT_EQ(events[2].stream, 2u);
    EXPECT_EQ(events[2].index, 2u);
    std::ostringstream out;
    out << events[1];
    EXPECT_EQ(out.str(), "Thread: 2468  free Size: 100 Pointer: 0x19b29300 Stream: 0x7f00aa");
}

TEST(LogParser, knows_null_of_every_release) {
    const auto events = parse(header + "1,t,free,(nil),0,0\r\n1,t,free,0x0,0,0x0\n1,t,free,0,0,0\n\n");
    ASSERT_EQ(events.size(), 3u);
    for (const event& e : events) {
        EXPECT_EQ(e.pointer, 0u);
        EXPECT_EQ(e.stream, 0u);
    }
}

TEST(LogParser, finds_columns_by_name) {
    const auto events = parse("Stream,Size,Pointer,Action,Extra,Thread\n0x1,5,0xff,free,?,9\n");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0], (event{action::FREE, 5, std::uintptr_t{255}}));
    EXPECT_EQ(events[0].thread_id, 9u);
    EXPECT_EQ(events[0].stream, 1u);
}

TEST(LogParser, says_what_it_cannot_read) {
    EXPECT_EQ(refusal(header), "none");
    EXPECT_EQ(refusal(""), ", line 1: the file cannot be opened, or is empty");
    EXPECT_THROW(parse_csv("/no/such/file"), rmm::logic_error);
    EXPECT_EQ(refusal("Thread,Time,Action,Pointer,Size\n"), ", line 1: there is no column 'Stream'");
    EXPECT_EQ(refusal(header + "1,t,free,0x1,2\n"), ", line 2: 5 columns instead of 6");
    EXPECT_EQ(refusal(header + "1,t,free,0x1,2,0\n1,t,lose,0x1,2,0\n"), ", line 3: the action 'lose' is unknown");
    EXPECT_EQ(refusal(header + "1,t,free,0x1,2.5,0\n"), ", line 2: '2.5' is no number");
    EXPECT_EQ(refusal(header + "1,t,free,0xg,2,0\n"), ", line 2: '0xg' is no number");
    EXPECT_EQ(refusal(header + "1,t,free,,2,0\n"), ", line 2: '' is no number");
}

}  // namespace
