// Records: what is written can be read, and what cannot be read says where and why.
#include "kmm/trace/record_reader.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "kmm/error.hpp"
#include "kmm/trace/record_file.hpp"

namespace {

using kmm::InvalidArgument;
using namespace kmm::trace;

class Ignore final : public Consumer {
  public:
    void bound(const Array&, std::int64_t) noexcept override {}
    void named(Number, const std::string&, std::int64_t) noexcept override {}
    void submitted(const Task&, std::int64_t) noexcept override {}
    void note(const Event&, const Fence*, std::size_t, std::int64_t, std::uint32_t) noexcept override {}
    void finish(std::uint64_t) noexcept override {}
};

const std::string head = "kmm-record 1\nruntime driver=host limits=100,200 lanes=g0.c0,g0.up,g0.down,g0.peer,g0.f0\n";

std::string refusal(const std::string& text) {
    Ignore ignore;
    std::istringstream in(text);
    bool complete = true;
    try {
        (void)read_record(in, "a.txt", ignore, &complete);
    } catch (const InvalidArgument& e) {
        return e.what();
    }
    return complete ? "complete" : "not complete";
}

TEST(Record, a_good_one_is_read_and_says_whether_it_is_complete) {
    EXPECT_EQ(refusal(head), "not complete");
    EXPECT_EQ(refusal(head + "end lost=0\n"), "complete");
    EXPECT_EQ(refusal(head + "end lost=3\n"), "not complete");
}

TEST(Record, what_is_no_record_is_refused) {
    EXPECT_NE(refusal("hello\n").find("a.txt is no record: its first line"), std::string::npos);
    EXPECT_NE(refusal("kmm-record 1\n").find("ends behind its first line"), std::string::npos);
}

TEST(Record, a_bad_line_is_named_with_what_was_expected_there) {
    const struct {
        const char* line;
        const char* expected;
    } bad[] = {
        {"nonsense", "a kind of line"},
        {"array x", "a number"},
        {"array 1 element=8 box=0:4 chunks=0:4,0:2", "a box of rank 1"},
        {"array 1 element=8 box=0-4", "\":\""},
        {"name 1 x", "\"\"\""},
        {"name 1 \"x", "the end of a name"},
        {"kernel 1 on=disk", "\"g\""},
        {"kernel 1 on=g0 name=\"f\" chunk=0/1 space=0+1 colour=red", "a part of a task"},
        {"launch g0.c7:1 1", "a lane of the second line of the file"},
        {"launch g0.c0 1", "\":\""},
        {"settled 1 well", "the end of the line"},
        {"name 1 \"x\" y", "the end of the line"},
        {"end lost=0 or so", "the end of the line"},
        {"evict 1[0] g1 saved", "an array of a line before"},
        {"kernel 1 on=g4294967295", "a device of the second line of the file"},
        {"kernel 1 on=g1 name=\"f\" chunk=0/1 space=.", "a device of the second line of the file"},
        {"kernel 1 on=g0 name=\"f\" chunk=0/1 space=. r7[0]@0:1=c", "an array of a line before, and not 7,"},
    };
    for (const auto& b : bad) {
        const std::string text = refusal(head + b.line + "\n");
        EXPECT_NE(text.find("a.txt, line 3: expected " + std::string(b.expected)), std::string::npos)
            << b.line << ": " << text;
    }
}

TEST(Record, a_bad_line_behind_an_array_is_named_too) {
    const std::string array = "array 1 element=8 box=0:4 chunks=0:2;2:4\n";
    const auto refused = [&](const std::string& line) { return refusal(head + array + line + "\n"); };
    EXPECT_EQ(refused("evict 1[1] g0 saved\nend lost=0"), "complete");
    EXPECT_NE(refused("evict 1[2] g0 saved").find("line 4: expected a chunk of array 1 below 2"), std::string::npos);
    EXPECT_NE(refused("evict 1[0] g0 burnt").find("expected \" dropped\""), std::string::npos);
    EXPECT_NE(refused("copy g0.up:1 1[0] host>g0 bytes=").find("expected a number"), std::string::npos);
    EXPECT_NE(refused("end lost=0\nsettled 1").find("line 5: expected nothing behind the last line"),
              std::string::npos);
}

TEST(Record, the_lanes_of_the_second_line_are_checked) {
    for (const char* lanes : {"g0.upx", "g0.c1z", "g0.c0,g0.c0", "g1.c0", "g0.c0 more"}) {
        const std::string text =
            refusal("kmm-record 1\nruntime driver=host limits=1,2 lanes=" + std::string(lanes) + "\n");
        EXPECT_NE(text.find("a.txt, line 2: expected"), std::string::npos) << lanes << ": " << text;
    }
}

TEST(Record, one_that_is_cut_off_anywhere_behind_its_head_is_read_up_to_its_last_whole_line) {
    const std::string whole = head +
                              "array 1 element=8 box=0:4 chunks=0:2;2:4\nname 1 \"x\"\ncopy g0.up:1 1[0] host>g0 " +
                              "bytes=1234\nsettled 12\nend lost=0\n";
    EXPECT_EQ(refusal(whole), "complete");
    for (std::size_t length = head.size(); length < whole.size(); ++length)
        EXPECT_EQ(refusal(whole.substr(0, length)), "not complete") << length;
}

TEST(Record, a_file_is_written_by_one_at_a_time) {
    const std::string path = ::testing::TempDir() + "kmm_record_twice";
    {
        RecordWriter first(path, "record (KMM_RECORD)", {});
        try {
            RecordWriter second(path, "record (KMM_RECORD)", {});
            FAIL() << "two write it";
        } catch (const InvalidArgument& e) {
            EXPECT_NE(std::string(e.what()).find("this process writes already: name another file, or one with %r"),
                      std::string::npos);
        }
    }
    RecordWriter again(path, "record (KMM_RECORD)", {});
    std::remove(path.c_str());
}

TEST(Record, another_name_is_taken_where_the_file_is_being_written) {
    const std::string path = ::testing::TempDir() + "kmm_record_instead";
    const FilePath both(path, path + ".2");
    {
        RecordWriter first(both, "record (KMM_RECORD)", {});
        RecordWriter second(both, "record (KMM_RECORD)", {});
        EXPECT_THROW(RecordWriter(both, "record (KMM_RECORD)", {}), InvalidArgument) << "that one is written too";
        second.note({.what = What::array_freed, .array = 7}, nullptr, 0, 0, 0);
    }
    std::ifstream in(path + ".2");
    EXPECT_NE(std::string(std::istreambuf_iterator<char>(in), {}).find("free 7\n"), std::string::npos);
    std::remove(path.c_str());
    std::remove((path + ".2").c_str());
}

TEST(Record, the_moment_when_an_array_is_dropped_is_written_and_read) {
    struct Drops final : Consumer {
        void bound(const Array&, std::int64_t) noexcept override {}
        void named(Number, const std::string&, std::int64_t) noexcept override {}
        void submitted(const Task&, std::int64_t) noexcept override {}
        void note(const Event& e, const Fence*, std::size_t, std::int64_t, std::uint32_t) noexcept override {
            if (e.what == What::dropped) arrays.push_back(e.array);
        }
        void finish(std::uint64_t) noexcept override {}
        std::vector<Number> arrays;
    } drops;
    const std::string path = ::testing::TempDir() + "kmm_record_drop";
    {
        Machine machine;
        machine.driver = "host";
        machine.limits_bytes = std::vector<std::size_t>{1, 2};
        machine.lanes = {{0, LaneRole::compute, 0}};
        RecordWriter writer(path, "record", machine);
        writer.note({.what = What::dropped, .array = 3}, nullptr, 0, 0, 0);
        writer.finish(0);
    }
    std::ifstream in(path);
    bool complete = false;
    (void)read_record(in, path, drops, &complete);
    EXPECT_TRUE(complete);
    EXPECT_EQ(drops.arrays, std::vector<Number>{3});
    std::remove(path.c_str());
}

TEST(Record, an_error_has_at_most_200_bytes_of_a_name) {
    const std::string name(100'000, 'n');
    EXPECT_LE(refusal(head + "launch " + name + ":1 2\n").size(), 800u);
    EXPECT_LE(refusal(head + name + "\n").size(), 800u);
}

TEST(Record, a_file_that_cannot_be_written_is_refused_with_its_setting_and_a_remedy) {
    try {
        RecordWriter writer("/no/such/folder/a.txt", "record (KMM_RECORD)", {});
        FAIL() << "it was written";
    } catch (const InvalidArgument& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("record (KMM_RECORD) is \"/no/such/folder/a.txt\", which cannot be written"),
                  std::string::npos);
        EXPECT_NE(text.find("name a file in a directory that exists"), std::string::npos);
    }
}

}  // namespace
