// Feeds pool_operations.cpp with random inputs, and with the files named on the command line (inputs that once failed).
// KMM_TEST_LONG=1: for minutes.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> current;

/// The input that failed, for the corpus.
void keep_input(int) {
    std::FILE* const file = std::fopen("pool_operations-failure", "wb");
    if (file != nullptr) {
        std::fwrite(current.data(), 1, current.size(), file);
        std::fclose(file);
        std::fputs("the input is in pool_operations-failure: name it on the command line to repeat it\n", stderr);
    }
    std::signal(SIGABRT, SIG_DFL);
}

}  // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "cannot read %s\n", argv[i]);
            return 2;
        }
        const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    const unsigned seed = std::random_device{}();
    std::mt19937 random(seed);
    const int rounds = std::getenv("KMM_TEST_LONG") != nullptr    ? 100000
                       : std::getenv("KMM_TEST_SHORT") != nullptr ? 100
                                                                  : 1000;
    std::printf("seed %u, %d inputs\n", seed, rounds);
    std::fflush(stdout);
    std::signal(SIGABRT, keep_input);
    for (int round = 0; round < rounds; ++round) {
        current.resize(random() % 8000);
        for (std::uint8_t& b : current) b = static_cast<std::uint8_t>(random());
        LLVMFuzzerTestOneInput(current.data(), current.size());
    }
    return 0;
}
