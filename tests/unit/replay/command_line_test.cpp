// The options of the programs that RMM's users script against, in each spelling.
#include "command_line.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using kmm::bench::CommandLine;

/// Arguments that live as long as the test.
class Words {
  public:
    Words(std::initializer_list<const char*> words) : words_(words.begin(), words.end()) {
        for (std::string& word : words_) pointers_.push_back(word.data());
    }
    CommandLine line() { return {static_cast<int>(pointers_.size()), pointers_.data()}; }

  private:
    std::vector<std::string> words_;
    std::vector<char*> pointers_;
};

TEST(CommandLines, TakeAValueInEachSpelling) {
    for (Words words : {Words{"program", "-f", "x.csv"}, Words{"program", "-fx.csv"},
                        Words{"program", "--file", "x.csv"}, Words{"program", "--file=x.csv"}}) {
        CommandLine line = words.line();
        EXPECT_EQ(line.text("-f", "--file"), "x.csv");
        EXPECT_EQ(line.num_left(), 1);
    }
}

TEST(CommandLines, LeaveWhatNobodyAskedFor) {
    Words words{"program", "-v", "--benchmark_filter=pool", "-s", "0.5"};
    CommandLine line = words.line();
    EXPECT_TRUE(line.flag("-v", "--verbose"));
    EXPECT_FALSE(line.flag("-t", "--threads"));
    EXPECT_EQ(line.number("-s", "--size"), 0.5);
    EXPECT_EQ(line.count("-n", "--numallocs"), std::nullopt);
    ASSERT_EQ(line.num_left(), 2);
    EXPECT_STREQ(line.left()[1], "--benchmark_filter=pool");
}

TEST(CommandLines, LetTheLastValueCount) {
    Words words{"program", "-n", "3", "-n7"};
    CommandLine line = words.line();
    EXPECT_EQ(line.count("-n", "--numallocs"), 7u);
}

TEST(CommandLinesDeathTest, RefuseWhatIsNoNumberOrMissing) {
    Words bad{"program", "-s", "much"}, missing{"program", "-f"};
    EXPECT_EXIT((void)bad.line().number("-s", "--size"), ::testing::ExitedWithCode(2), "--size is 'much'");
    EXPECT_EXIT((void)missing.line().text("-f", "--file"), ::testing::ExitedWithCode(2), "'-f' needs a value");
}

}  // namespace
