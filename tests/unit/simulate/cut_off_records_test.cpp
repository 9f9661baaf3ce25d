// A record that ends anywhere is played as far as it goes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "kmm/trace/record_reader.hpp"
#include "simulate/plays.hpp"
#include "simulate/program_check.hpp"

namespace {

using namespace kmm;

TEST(CutOffRecords, are_played_wherever_they_end) {
    std::size_t num_played = 0;
    for (const auto& entry : std::filesystem::directory_iterator(KMM_GOLDENS)) {
        std::ifstream file(entry.path());
        std::string text, line;
        for (std::size_t number = 1; std::getline(file, line); ++number) {
            text += line + '\n';
            if (number < 2) continue;  // without its machine it is no record
            std::istringstream in(text);
            simulate::Program program;
            bool complete = false;
            program.machine = trace::read_record(in, entry.path().string(), program, &complete);
            ASSERT_NO_THROW(simulate::check(program, entry.path().string())) << number << " lines";
            const simulate::Outcome outcome = simulate::play(
                program, simulate::all_policies().front(), {}, [](graph::TaskNumber) { return std::int64_t{1000}; }, 0);
            EXPECT_TRUE(outcome.ended) << entry.path() << ": " << number << " lines";
            ++num_played;
        }
    }
    EXPECT_GT(num_played, 300u);
}

}  // namespace
