// The reader of logs: every form that a field ever had, and what is wrong in a file told with its line.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "utilities/log_parser.hpp"

namespace {

using rmm::detail::action;
using rmm::detail::event;
using rmm::detail::parse_csv;

class LogParser : public ::testing::Test {
  protected:
    ~LogParser() override { std::remove(file_.c_str()); }
    std::string written(const std::string& text) {
        std::ofstream(file_) << text;
        return file_;
    }
    static std::string complaint(const std::string& file) {
        try {
            parse_csv(file);
        } catch (const rmm::logic_error& error) {
            return error.what();
        }
        return "";
    }
    static inline const std::string header = "Thread,Time,Action,Pointer,Size,Stream\n";

  private:
    std::string file_ =
        ::testing::TempDir() + "log_parser_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

TEST_F(LogParser, ReadsEveryFieldOfALine) {
    const auto events = parse_csv(written(header + "2467,00:56:53.652380,allocate,0x19b29300,100,0x55d0\n"));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].act, action::ALLOCATE);
    EXPECT_EQ(events[0].thread_id, 2467u);
    EXPECT_EQ(events[0].pointer, 0x19b29300u);
    EXPECT_EQ(events[0].size, 100u);
    EXPECT_EQ(events[0].stream, 0x55d0u);
    EXPECT_EQ(events[0].index, 0u);
}

TEST_F(LogParser, KnowsTheThreeActionsAndNumbersTheLines) {
    const auto events = parse_csv(written(header + "1,t,allocate,0x100,1,0\n1,t,free,0x100,1,0\n"
                                                   "1,t,allocate failure,(nil),9,0\n"));
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[1].act, action::FREE);
    EXPECT_EQ(events[2].act, action::ALLOCATE_FAILURE);
    EXPECT_EQ(events[2].index, 2u);
}

TEST_F(LogParser, TakesNullPointersAndDefaultStreamsOfEveryRelease) {
    const auto events = parse_csv(written(header + "1,t,free,(nil),0,0\n1,t,free,0x0,0,0x0\n1,t,free,0,0,0x2\n"));
    for (const event& each : events) EXPECT_EQ(each.pointer, 0u);
    EXPECT_EQ(events[0].stream, 0u);
    EXPECT_EQ(events[1].stream, 0u);
    EXPECT_EQ(events[2].stream, 2u);
}

TEST_F(LogParser, AcceptsALogWithoutEventsAndLinesThatEndAsOnOtherSystems) {
    EXPECT_TRUE(parse_csv(written(header)).empty());
    EXPECT_EQ(parse_csv(written("Thread,Time,Action,Pointer,Size,Stream\r\n1,t,free,0x1,2,0\r\n\r\n")).size(), 1u);
}

TEST_F(LogParser, FindsColumnsByTheirNames) {
    const auto events = parse_csv(written("Action,Size,Pointer,Stream,Thread\nallocate,7,0x100,0x3,5\n"));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].size, 7u);
    EXPECT_EQ(events[0].thread_id, 5u);
}

TEST_F(LogParser, RefusesWhatIsWrongAndSaysWhatAndWhere) {
    const auto has = [](const std::string& text, const std::string& part) {
        return ::testing::AssertionResult(text.find(part) != std::string::npos) << text;
    };
    const std::string shorter = complaint(written(header + "1,t,allocate,0x100,1,0\n1,t,free,0x100,1\n"));
    EXPECT_TRUE(has(shorter, "3: ") && has(shorter, "5 columns"));
    const std::string unknown = complaint(written(header + "1,t,resize,0x100,1,0\n"));
    EXPECT_TRUE(has(unknown, "2: ") && has(unknown, "'resize'"));
    EXPECT_TRUE(has(complaint(written(header + "1,t,free,0x100,12kB,0\n")), "'12kB' is no number"));
    EXPECT_TRUE(has(complaint(written(header + "1,t,free,,1,0\n")), "'' is no number"));
    EXPECT_TRUE(has(complaint(written("Thread,Time,Action,Pointer,Size\n")), "no column 'Stream'"));
    EXPECT_NE(complaint(written("")), "");
    EXPECT_TRUE(has(complaint("/nowhere/at/all.csv"), "/nowhere/at/all.csv"));
}

TEST_F(LogParser, RefusesNumbersThatOverflowAndSaysInWhichLine) {
    for (const char* number : {"18446744073709551616", "0x10000000000000000", "99999999999999999999999999"}) {
        const std::string said =
            complaint(written(header + "1,t,allocate,0x100,1,0\n\n1,t,allocate,0x200," + number + ",0\n"));
        EXPECT_NE(said.find("line 4: '" + std::string(number) + "' is too large for 64 bits"), std::string::npos)
            << said;
    }
    EXPECT_NE(complaint(written(header + "1,t,free,0x1,-1,0\n")).find("line 2: '-1' is no number"), std::string::npos);
    EXPECT_EQ(parse_csv(written(header + "1,t,allocate,0x100,18446744073709551615,0\n"))[0].size, ~std::size_t{0});
}

TEST_F(LogParser, CountsTheLinesOfTheFileEmptyOnesToo) {
    const auto events = parse_csv(written(header + "\n1,t,allocate,0x100,1,0\n\n1,t,free,0x100,1,0\n"));
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].line, 3u);
    EXPECT_EQ(events[1].line, 5u);
}

TEST_F(LogParser, ComparesEventsByActionSizeAndAddress) {
    int somewhere = 0;
    const event left{action::FREE, 42, &somewhere};
    EXPECT_EQ(left, (event{7, action::FREE, 42, reinterpret_cast<std::uintptr_t>(&somewhere), 3, 9}));
    EXPECT_FALSE(left == (event{action::ALLOCATE, 42, &somewhere}));
}

}  // namespace
