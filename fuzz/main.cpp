// Feeds a fuzz target with the files and folders of the command line, with random bytes, and with files that were
// changed at random. Each run does the same; with KMM_TEST_LONG=1 it takes minutes and has a seed of its own, which
// KMM_TEST_SEED repeats.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());  // in sanitizers' run-time libraries

namespace {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937;

Bytes current;

/// Keeps the input that failed, for the corpus. Nothing here allocates: the heap may be what is broken.
void keep_input() {
    static constexpr char text[] =
        "the input is in " KMM_FUZZ_TARGET "-failure: name it on the command line to repeat it\n";
    const int file = ::open(KMM_FUZZ_TARGET "-failure", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ::write(file, current.data(), current.size()) != static_cast<ssize_t>(current.size())) return;
    ::close(file);
    (void)!::write(STDERR_FILENO, text, sizeof text - 1);
}

void keep_input_and_end(int signal) {
    keep_input();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

Bytes random_bytes(Random& random) {
    Bytes bytes(random() % 8000);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    return bytes;
}

/// A line, a number or a byte of `bytes` is left out, doubled, exchanged or replaced, once or a few times.
Bytes changed(const Bytes& bytes, Random& random) {
    std::vector<std::string> lines(1);
    for (const std::uint8_t b : bytes) {
        lines.back() += static_cast<char>(b);
        if (b == '\n') lines.emplace_back();
    }
    const std::size_t most = std::size_t{10} << random() % 6;
    if (lines.size() > most) lines.resize(most);
    const auto any_line = [&] { return random() % lines.size(); };
    for (std::size_t change = 1 + random() % 3; change > 0; --change) {
        // The first lines say what the others are about.
        const std::size_t at = random() % 4 == 0 ? std::min<std::size_t>(random() % 4, lines.size() - 1) : any_line();
        std::string& line = lines[at];
        switch (random() % 8) {
        case 0: line.clear(); break;
        case 1: line = lines[any_line()]; break;
        case 2: line += lines[any_line()]; break;
        case 3: std::swap(line, lines[any_line()]); break;
        case 4:
            if (!line.empty()) line[random() % line.size()] = static_cast<char>(random());
            break;
        case 5: line.resize(random() % (line.size() + 1)); break;
        default: {
            static const char* const numbers[] = {"0",
                                                  "1",
                                                  "-1",
                                                  "2",
                                                  "99",
                                                  "4294967295",
                                                  "4294967296",
                                                  "9223372036854775807",
                                                  "-9223372036854775808",
                                                  "18446744073709551615"};
            const std::size_t begin = line.find_first_of("0123456789", line.empty() ? 0 : random() % line.size());
            if (begin == std::string::npos) break;
            const std::size_t end = std::min(line.find_first_not_of("0123456789", begin), line.size());
            line.replace(begin, end - begin, numbers[random() % std::size(numbers)]);
        }
        }
    }
    Bytes result;
    for (const std::string& line : lines) result.insert(result.end(), line.begin(), line.end());
    return result;
}

bool read_all(const std::filesystem::path& path, std::vector<Bytes>& files) {
    if (std::filesystem::is_directory(path)) {
        for (const auto& entry : std::filesystem::directory_iterator(path))
            if (!read_all(entry.path(), files)) return false;
        return true;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return false;
    }
    files.push_back(Bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<Bytes> files;
    for (int i = 1; i < argc; ++i)
        if (!read_all(argv[i], files)) return 2;
    // A sanitizer ends the process by itself, and has its own handlers.
    if (__sanitizer_set_death_callback != nullptr)
        __sanitizer_set_death_callback(keep_input);
    else
        for (const int signal : {SIGSEGV, SIGFPE}) std::signal(signal, keep_input_and_end);
    std::signal(SIGABRT, keep_input_and_end);
    for (const Bytes& file : files) {
        current = file;
        LLVMFuzzerTestOneInput(current.data(), current.size());
    }
    const char* const given = std::getenv("KMM_TEST_SEED");
    const bool is_long = std::getenv("KMM_TEST_LONG") != nullptr;
    const unsigned seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                          : is_long        ? std::random_device{}()
                                           : 1;
    Random random(seed);
    const int rounds = is_long ? 100000 : std::getenv("KMM_TEST_SHORT") != nullptr ? 100 : 1000;
    std::printf("seed %u, %d inputs\n", seed, rounds);
    std::fflush(stdout);
    for (int round = 0; round < rounds; ++round) {
        const bool changes = !files.empty() && random() % 8 != 0;
        current = changes ? changed(files[random() % files.size()], random) : random_bytes(random);
        LLVMFuzzerTestOneInput(current.data(), current.size());
    }
    return 0;
}
