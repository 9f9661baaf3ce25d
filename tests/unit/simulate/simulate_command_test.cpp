// `kmm simulate` as a person calls it: what it prints, and what it says of words that make no sense.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "kmm_simulate.hpp"

namespace {

struct Printed {
    int status = 0;
    std::string out, error;
};

Printed call(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& w : words) arguments.push_back(w.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Printed printed;
    printed.status = kmm::tools::simulate(static_cast<int>(arguments.size()), arguments.data());
    std::fflush(stdout);
    printed.out = ::testing::internal::GetCapturedStdout();
    printed.error = ::testing::internal::GetCapturedStderr();
    return printed;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(SimulateCommand, compares_policies_on_a_program_that_it_makes) {
    const Printed p = call({"product", "--size", "4", "--chunk", "1MiB", "--room", "6"});
    EXPECT_EQ(p.status, 0) << p.error;
    EXPECT_TRUE(has(p.out, "product: 112 tasks, 48 chunks; 16.00 TiB on the host, 6.00 MiB on g0\n")) << p.out;
    for (const char* row : {"ours ", "fewest bytes ", "as submitted ", "by depth ", "ours, known before "})
        EXPECT_TRUE(has(p.out, std::string("\n") + row)) << row << '\n' << p.out;
    const Printed ours = call({"stencil", "--size", "4", "--steps", "3", "--rank", "3", "--chunk", "1MiB", "--ours"});
    EXPECT_EQ(ours.status, 0) << ours.error;
    EXPECT_FALSE(has(ours.out, "as submitted"));
    const Printed runs = call(
        {"cholesky", "--size", "4", "--chunk", "1MiB", "--room", "20", "--runs", "2", "--made-on-device", "--ours"});
    EXPECT_EQ(runs.status, 0) << runs.error;
    EXPECT_TRUE(has(runs.out, "cholesky: 50 tasks")) << runs.out;
    EXPECT_TRUE(has(runs.out, "next use                  0.00      0.00")) << runs.out;
}

TEST(SimulateCommand, plays_a_record_with_the_times_that_it_has) {
    const std::string path = ::testing::TempDir() + "kmm_simulate_" + std::to_string(getpid());
    std::ofstream(path) << "kmm-record 1\n"
                           "runtime driver=host limits=1048576,65536 lanes=g0.c0,g0.c1,g0.up,g0.down,g0.peer,g0.f0\n"
                           "array 1 element=8 box=0:512 chunks=0:512\n"
                           "kernel 1 on=g0 name=\"slow\" chunk=0/1 space=0+512 grid=1,1,1 block=64,1,1 "
                           "o1[0]@0:512=wx\n"
                           "launch g0.c0:1 1\n"
                           "ran g0.c0:1 ns=2500000000\n"
                           "settled 1\n"
                           "end lost=0\n";
    const Printed recorded = call({path, "--ours"});
    const Printed given = call({path, "--ours", "--task-us", "slow=500000"});
    std::remove(path.c_str());
    EXPECT_EQ(recorded.status, 0) << recorded.error;
    EXPECT_TRUE(has(recorded.out, ": 1 tasks, 1 chunks; 1.00 MiB on the host, 64.00 KiB on g0\n")) << recorded.out;
    EXPECT_TRUE(has(recorded.out, " 2.50")) << recorded.out;
    EXPECT_TRUE(has(given.out, " 0.50")) << given.out;
}

Printed call_with_record(const std::string& lines) {
    const std::string path = ::testing::TempDir() + "kmm_simulate_" + std::to_string(getpid());
    std::ofstream(path) << "kmm-record 1\n" << lines;
    const Printed p = call({path, "--ours"});
    std::remove(path.c_str());
    return p;
}

const std::string machine = "runtime driver=host limits=1048576,65536 lanes=g0.c0,g0.up,g0.down,g0.peer,g0.f0\n";
const std::string four_chunks = "array 1 element=8 box=0:512 chunks=0:128;128:256;256:384;384:512\n";

TEST(SimulateCommand, plays_a_record_that_is_cut_off_between_a_transfer_and_its_task) {
    const Printed p = call_with_record(machine + four_chunks +
                                       "array 2 element=8 box=64:192 chunks=64:192 temporary=2\n"
                                       "host 1 on=host name=\"f\" chunk=0/1 space=0+128 o1[0]@0:128=wx\n"
                                       "host 2 on=host name=\"f\" chunk=0/1 space=128+128 o1[1]@128:256=wx\n"
                                       "transfer h1 on=g0 name=\"g\" chunk=0/1 space=0+128 o2[0]@64:192=wx "
                                       "r1[0]@64:128=c r1[1]@128:192=c after=1,2\n");
    EXPECT_EQ(p.status, 0) << p.error;
    EXPECT_TRUE(has(p.error, "the record is not complete")) << p.error;
}

TEST(SimulateCommand, refuses_a_record_that_no_runtime_has_written) {
    const std::string task = "kernel 1 on=g0 name=\"k\" chunk=0/1 space=0+1 grid=1,1,1 block=1,1,1";
    const std::string copy = "array 2 element=8 box=0:512 chunks=0:512 temporary=4\n";
    const std::string move = "transfer h1 on=g0 name=\"t\" chunk=0/1 space=0+1";
    const std::pair<std::string, std::string> wrong[] = {
        {"runtime driver=host limits=1048576,65536 lanes=g0.c0,g0.up,g0.f0\n", "the lanes of its second line"},
        {machine + four_chunks + four_chunks, "there are two arrays 1"},
        {machine + "array 1 element=8 box=0:512 chunks=0:128;128:64\n", "array 1: a chunk has no elements"},
        {machine + "array 1 element=8 box=0:512 chunks=0:128\n", "array 1: its chunks do not cover it"},
        {machine + "array 1 element=8 box=0:8 chunks=0:5;4:8\n", "array 1: chunks 0 and 1 have elements in common"},
        {machine + "array 1 element=0 box=0:8 chunks=0:8\n", "array 1: its elements have 0 bytes"},
        {machine + "array 1 element=8 box=0:9223372036854775807 chunks=0:9223372036854775807\n",
         "array 1: it has 2^63 bytes or more"},
        {machine + "array 1 element=8 box=0:8 chunks=0:4;4:8 temporary=2\n", "array 1: a temporary has one chunk"},
        {machine + "join 2\n", "task 1 is missing"},
        {machine + "join 1 after=1\n", "task 1: it comes after itself"},
        {machine + four_chunks + task + " r1[0]@0:129=c\n", "task 1: its region of array 1 is not in the chunk"},
        {machine + "kernel 1 on=host name=\"k\" chunk=0/1 space=0+1 grid=1,1,1 block=1,1,1\n", "runs on a device"},
        {machine + "transfer h1 on=g0 name=\"t\" chunk=0/1 space=0+1\n", "it is no transfer"},
        {machine + four_chunks + move + " o1[0]@0:128=cw r1[0]@0:128=ca\n", "it is no transfer"},
        {machine + four_chunks + copy + move + " o2[0]@0:512=wx r1[0]@0:128=ca r1[0]@0:128=ca\n", "it is no transfer"},
        {machine + four_chunks + copy + move + " o2[0]@0:512=wx r1[0]@0:128=cp\n", "it is no transfer"},
        {machine + four_chunks + copy + move + " o2[0]@0:512=wxg r1[0]@0:128=ca\n", "it is no transfer"},
        {machine + four_chunks + task + " r1[0]@0:9=cg\n", "array 1 is no temporary"},
        {machine + four_chunks + "array 2 element=8 box=64:192 chunks=64:192 temporary=2\n" + task +
             " r2[0]@64:192=cg r1[0]@64:128=cp\n",
         "pieces of array 2 are missing"},
    };
    for (const auto& [lines, text] : wrong) {
        const Printed p = call_with_record(lines);
        EXPECT_EQ(p.status, 1) << text;
        EXPECT_TRUE(has(p.error, text)) << "without '" << text << "': " << p.error;
    }
}

TEST(SimulateCommand, names_the_word_that_makes_no_sense) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
        {{}, "say what to play"},
        {{"product", "--speed", "3"}, "unknown option '--speed'"},
        {{"product", "--size"}, "--size needs a value"},
        {{"product", "--size", "-3"}, "--size needs a whole number from 1 to 1e9, but got '-3'"},
        {{"product", "--size", "2.5"}, "--size needs a whole number from 1 to 1e9, but got '2.5'"},
        {{"product", "--size", "0"}, "--size needs a whole number from 1 to 1e9, but got '0'"},
        {{"product", "--size", "1e10"}, "--size needs a whole number from 1 to 1e9, but got '1e10'"},
        {{"product", "--size", "nan"}, "--size needs a whole number from 1 to 1e9, but got 'nan'"},
        {{"product", "--size", ""}, "--size needs a whole number from 1 to 1e9, but got ''"},
        {{"product", "--size", "3x"}, "--size needs a whole number from 1 to 1e9, but got '3x'"},
        {{"axpy", "--steps", "0"}, "--steps needs a whole number from 1 to 1e9, but got '0'"},
        {{"axpy", "--runs", "0"}, "--runs needs a whole number from 1 to 1e9, but got '0'"},
        {{"axpy", "--room", "0"}, "--room needs a whole number from 1 to 1e9, but got '0'"},
        {{"stencil", "--rank", "0"}, "--rank needs a whole number from 1 to 1e9, but got '0'"},
        {{"random", "--seed", "-1"}, "--seed needs a whole number from 0 to 1e9, but got '-1'"},
        {{"product", "--size", "1e6"}, "product with --size 1000000 and --steps 0 makes more than 1e7 tasks"},
        {{"axpy", "--room", "1e9", "--chunk", "1e12"}, "chunks of 1000000000000 bytes make arrays or memories of more"},
        {{"product", "--chunk", "0"}, "--chunk needs a number of bytes such as 4GiB, but got '0'"},
        {{"product", "--task-us", "-1"}, "--task-us needs a number of microseconds from 0 to 1e9, but got '-1'"},
        {{"product", "--task-us", "multiply="}, "--task-us needs a number of microseconds from 0 to 1e9, but got ''"},
        {{"product", "--submit-us", "inf"}, "--submit-us needs a number of microseconds from 0 to 1e9, but got 'inf'"},
        {{"product", "--host-us", "1e10"}, "--host-us needs a number of microseconds from 0 to 1e9, but got '1e10'"},
        {{"product", "--up", "1e-300"}, "--up needs a rate in GB/s from 1e-6 to 1e6, but got '1e-300'"},
        {{"product", "--up", "1e-400"}, "--up needs a rate in GB/s from 1e-6 to 1e6, but got '1e-400'"},
        {{"product", "--down", "1e300"}, "--down needs a rate in GB/s from 1e-6 to 1e6, but got '1e300'"},
        {{"product", "--both", "nan"}, "--both needs a rate in GB/s from 1e-6 to 1e6, but got 'nan'"},
        {{"product", "--peer", "-1"}, "--peer needs a rate in GB/s from 1e-6 to 1e6, but got '-1'"},
        {{"product", "--within", "1 "}, "--within needs a rate in GB/s from 1e-6 to 1e6, but got '1 '"},
        {{"product", "--chunk", "many"}, "--chunk needs a number of bytes such as 4GiB, but got 'many'"},
        {{"product", "--up", "0"}, "--up needs a rate in GB/s from 1e-6 to 1e6, but got '0'"},
        {{"stencil", "--rank", "4"}, "--rank is 1, 2 or 3, but got 4"},
        {{"random", "--runs", "2"}, "--runs and --made-on-device are for axpy"},
        {{"product", "cholesky"}, "one program at a time, but got 'product' and 'cholesky'"},
    };
    for (const auto& [words, text] : wrong) {
        const Printed p = call(words);
        EXPECT_EQ(p.status, 2);
        EXPECT_TRUE(has(p.error, "kmm simulate: " + text)) << p.error;
        EXPECT_TRUE(has(p.error, "usage: kmm simulate RECORD"));
    }
    const Printed missing = call({"no_such_record"});
    EXPECT_EQ(missing.status, 1);
    EXPECT_TRUE(has(missing.error, "no_such_record: cannot be opened: No such file")) << missing.error;
}

TEST(SimulateCommand, prints_help_and_not_more_than_200_bytes_of_a_word) {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"--help"}, {"product", "-h"}}) {
        const Printed p = call(words);
        EXPECT_EQ(p.status, 0);
        EXPECT_EQ(p.out.find("usage: kmm simulate RECORD"), 0u) << p.out;
        EXPECT_EQ(p.error, "");
    }
    const std::string word(100'000, 'w');
    const std::size_t usage_bytes = call({}).error.size();
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{word}, {"axpy", "--" + word}, {"axpy", word}, {"axpy", "--up", word}})
        EXPECT_LE(call(words).error.size(), usage_bytes + 500);
}

TEST(SimulateCommand, plays_programs_that_drop_arrays) {
    const Printed pipeline = call({"pipeline", "--size", "50", "--room", "8", "--chunk", "1MiB", "--ours"});
    EXPECT_EQ(pipeline.status, 0) << pipeline.error;
    EXPECT_TRUE(has(pipeline.out, "pipeline: 151 tasks, 101 chunks; ")) << pipeline.out;
    const Printed turns =
        call({"temporaries", "--size", "2", "--steps", "10", "--room", "20", "--chunk", "1MiB", "--ours"});
    EXPECT_EQ(turns.status, 0) << turns.error;
    EXPECT_TRUE(has(turns.out, "temporaries: 82 tasks, 42 chunks; ")) << turns.out;
    const Printed random = call({"fitting", "--size", "3", "--seed", "16"});
    EXPECT_TRUE(has(random.out, "3 programs from seed 16: ")) << random.out << random.error;
}

TEST(SimulateCommand, says_that_a_task_found_no_room) {
    const Printed p = call({"product", "--size", "2", "--chunk", "1MiB", "--room", "2", "--ours"});
    EXPECT_EQ(p.status, 1);
    EXPECT_TRUE(has(p.out, "tasks failed")) << p.out;
    EXPECT_TRUE(has(p.error, "is the memory large enough for the largest task?")) << p.error;
}

}  // namespace
