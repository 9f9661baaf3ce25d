// `kmm trace`: its words, its exit status, and the files that it leaves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kmm_trace.hpp"
#include "trace_texts.hpp"

namespace {

namespace fs = std::filesystem;

struct Result {
    int status;
    std::string out;
    std::string error;
};

Result run(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = kmm::tools::trace(static_cast<int>(arguments.size()), arguments.data());
    return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

class TraceCommand : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("kmm_trace_test_" + std::to_string(getpid()));
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name)) << text;
        return path(name);
    }
    std::size_t num_files() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
    }

  private:
    fs::path folder_;
};

std::string content(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

const std::string good = file_with({slice("axpy", 1, 2)});

TEST_F(TraceCommand, words_that_make_no_sense_are_named_and_followed_by_the_usage) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{}, "say what to do: check or view"},
        {{"look"}, "unknown command 'look'"},
        {{"check"}, "check needs a file"},
        {{"view"}, "view needs a file"},
        {{"check", "a", "b"}, "check takes one file, but got 'a' and 'b'"},
        {{"view", "a", "-o"}, "-o needs the name of the page"},
        {{"check", "a", "-o", "b"}, "unknown option '-o' of check"},
        {{"view", "--fast", "a"}, "unknown option '--fast' of view"},
    };
    for (const auto& [words, text] : cases) {
        const Result result = run(words);
        EXPECT_EQ(result.status, 2) << text;
        EXPECT_EQ(result.error.find("kmm trace: " + text + "\nusage: kmm trace check FILE"), 0u) << result.error;
        EXPECT_EQ(result.out, "");
    }
}

TEST_F(TraceCommand, check_prints_a_summary) {
    const Result result = run({"check", write("t.json", good)});
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out.find(path("t.json") + ": 4 events in 2.000 us"), 0u) << result.out;
    EXPECT_EQ(result.error, "");
}

TEST_F(TraceCommand, check_ends_with_1_and_one_line_for_a_bad_file) {
    const Result result = run({"check", write("t.json", file_with({slice("axpy", 1, -2)}))});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.error, "kmm trace: " + path("t.json") +
                                ": event 4 (\"axpy\"): \"dur\" is -2.000 us: it would end before it begins\n");
    EXPECT_EQ(result.out, "");
}

TEST_F(TraceCommand, a_file_that_is_not_there_or_is_a_folder_is_an_error) {
    EXPECT_EQ(run({"check", path("none.json")}).error,
              "kmm trace: " + path("none.json") + ": cannot be opened: No such file or directory\n");
    const Result folder = run({"view", path("")});
    EXPECT_EQ(folder.status, 1);
    EXPECT_EQ(folder.error, "kmm trace: " + path("") + ": cannot be read: Is a directory\n");
}

TEST_F(TraceCommand, view_writes_a_page_beside_the_trace_or_where_it_is_told) {
    const std::string file = write("t.json", good);
    EXPECT_EQ(run({"view", file}).out, path("t.html") + ": 4 events\n");
    EXPECT_EQ(content(path("t.html")).find("<!DOCTYPE html>"), 0u);
    EXPECT_EQ(run({"view", file, "-o", path("other.html")}).status, 0);
    EXPECT_EQ(run({"view", "-o", path("third.html"), file}).status, 0);
    EXPECT_EQ(content(path("other.html")), content(path("t.html")));
    EXPECT_EQ(content(path("third.html")), content(path("t.html")));
    EXPECT_EQ(num_files(), 4u);
}

TEST_F(TraceCommand, a_trace_that_is_cut_off_is_checked_and_viewed_as_far_as_it_goes) {
    const std::string file = write("t.json", good.substr(0, good.rfind(']')));
    const Result checked = run({"check", file});
    EXPECT_EQ(checked.status, 0) << checked.error;
    EXPECT_NE(checked.out.find("INCOMPLETE: the file ends before the trace does"), std::string::npos) << checked.out;
    const Result viewed = run({"view", file});
    EXPECT_EQ(viewed.status, 0) << viewed.error;
    EXPECT_EQ(viewed.out, path("t.html") + ": 4 events; INCOMPLETE: the file ends before the trace does\n");
    EXPECT_NE(content(path("t.html")).find("\"is_cut_off\":true"), std::string::npos);
}

TEST_F(TraceCommand, help_is_printed_wherever_it_is_asked_for) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--help"}, {"-h"}, {"check", "--help"}, {"view", "t.json", "-o", "--help"}}) {
        const Result result = run(words);
        EXPECT_EQ(result.status, 0);
        EXPECT_EQ(result.out.find("usage: kmm trace check FILE"), 0u) << result.out;
        EXPECT_EQ(result.error, "");
    }
}

TEST_F(TraceCommand, an_error_has_at_most_200_bytes_of_a_word) {
    const std::string word(100'000, 'w');
    const std::size_t usage_bytes = run({}).error.size();
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{word}, {"check", "--" + word}, {"check", "a", word}, {"check", word}})
        EXPECT_LE(run(words).error.size(), usage_bytes + 300);
}

TEST_F(TraceCommand, view_never_writes_over_the_trace) {
    const std::string file = write("t.html", good);
    const Result result = run({"view", file});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.error, "kmm trace: " + file + " is the trace itself: give the page another name with -o\n");
    EXPECT_EQ(content(file), good);
}

TEST_F(TraceCommand, a_page_that_cannot_be_made_leaves_the_one_that_was_there) {
    const std::string file = write("t.json", "{");
    write("t.html", "before");
    EXPECT_EQ(run({"view", file}).status, 1);
    EXPECT_EQ(content(path("t.html")), "before");
    EXPECT_EQ(num_files(), 2u);

    write("t.json", good);
    fs::create_directory(path("folder"));
    const Result result = run({"view", file, "-o", path("folder")});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.error.find(path("folder") + ": cannot be written: "), std::string::npos) << result.error;
    EXPECT_EQ(num_files(), 3u);
    EXPECT_NE(run({"view", file, "-o", path("none/p.html")}).error.find("cannot be written: No such file"),
              std::string::npos);
}

}  // namespace
