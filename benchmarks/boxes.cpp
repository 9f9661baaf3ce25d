// What a list of boxes takes to move (`Driver::move_boxes`): columns, rows, the faces of a block, many boxes, one large
// piece; within a device, from and to pinned host memory, and between two devices. For cuda beside the same copies made
// raw, a strided copy for each box, in the same run; what both leave is compared. Output: common.hpp. Names are
// <driver>/<list>/<direction>; the time is that of a list when several follow each other without a wait.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common.hpp"
#include "driver/registry.hpp"
#include "raw_cuda.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::driver;

/// Offsets instead of addresses.
struct Box {
    std::size_t destination, source;
    std::size_t run_bytes, height, depth;
    std::size_t destination_pitch, destination_rows, source_pitch, source_rows;
};

struct List {
    std::string name;
    std::vector<Box> boxes;
    std::size_t bytes() const {
        std::size_t bytes = 0;
        for (const Box& box : boxes) bytes += box.run_bytes * box.height * box.depth;
        return bytes;
    }
};

/// Packed on the destination's side.
Box packed(std::size_t destination, std::size_t source, std::size_t run_bytes, std::size_t height, std::size_t pitch) {
    return {destination, source, run_bytes, height, 1, run_bytes, height, pitch, height};
}

std::vector<List> lists() {
    std::vector<List> result;
    result.push_back({"columns_of_8_B_x_16384", {packed(0, 64, 8, 16384, 8192)}});
    result.push_back({"rows_of_4_KiB_x_4096", {packed(0, 4096, 4096, 4096, 16384)}});
    // The six faces of a block of 256 x 256 x 256 floats, one element deep, into buffers that lie behind each other.
    constexpr std::size_t n = 256, element = 4, row = n * element, plane = n * row;
    List faces{"faces_of_256_x_256_x_256_floats", {}};
    std::size_t to = 0;
    for (const std::size_t at : {std::size_t{0}, n - 1}) {
        faces.boxes.push_back({to, at * element, element, n, n, element, n, row, n});
        to += n * n * element;
        faces.boxes.push_back({to, at * row, row, 1, n, row, 1, row, n});
        to += n * n * element;
        faces.boxes.push_back({to, at * plane, row, n, 1, row, n, row, n});
        to += n * n * element;
    }
    result.push_back(faces);
    List tiles{"16_boxes_of_64_x_1_KiB", {}};
    for (std::size_t i = 0; i < 16; ++i) tiles.boxes.push_back(packed(i << 16, i << 22, 1024, 64, 8192));
    result.push_back(tiles);
    List many{"1000_boxes_of_16_x_64_B", {}};
    for (std::size_t i = 0; i < 1000; ++i) many.boxes.push_back(packed(i << 10, i << 16, 64, 16, 2048));
    result.push_back(many);
    result.push_back({"rows_of_1001_floats_x_4096", {packed(0, 4, 4004, 4096, 4100)}});
    result.push_back({"one_piece_of_64_MiB", {packed(0, 0, std::size_t{64} << 20, 1, 0)}});
    return result;
}

BoxMove move_of(const Box& box, std::byte* destination, const std::byte* source) {
    BoxMove move;
    move.destination = destination + box.destination;
    move.source = source + box.source;
    move.run_bytes = box.run_bytes;
    move.num_axes = 2;
    move.counts[0] = static_cast<std::int64_t>(box.depth);
    move.counts[1] = static_cast<std::int64_t>(box.height);
    move.destination_steps[0] = static_cast<std::int64_t>(box.destination_pitch * box.destination_rows);
    move.destination_steps[1] = static_cast<std::int64_t>(box.destination_pitch);
    move.source_steps[0] = static_cast<std::int64_t>(box.source_pitch * box.source_rows);
    move.source_steps[1] = static_cast<std::int64_t>(box.source_pitch);
    return move;
}

raw::StridedCopy copy_of(const Box& box, std::byte* destination, const std::byte* source) {
    return {destination + box.destination, source + box.source,  box.run_bytes,    box.height,     box.depth,
            box.destination_pitch,         box.destination_rows, box.source_pitch, box.source_rows};
}

class Bench {
  public:
    Bench(std::shared_ptr<Driver> driver, Report& report) : driver_(std::move(driver)), report_(report) {
        ok(driver_->set_current_device(0), "set_current_device");
        ok(driver_->create_stream(0, true, most_urgent, &stream_), "create_stream");
    }
    ~Bench() {
        for (void* memory : device_memory_) (void)driver_->free(memory);
        for (void* memory : pinned_) (void)driver_->free_pinned(memory);
        (void)driver_->destroy_stream(stream_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void run() {
        std::byte* const a = device(0);
        std::byte* const b = device(0);
        std::byte* const host = pinned();
        std::byte* peer = nullptr;
        bool can = false;
        if (driver_->device_count() > 1) ok(driver_->can_access_peer(0, 1, &can), "can_access_peer");
        if (can) {
            ok(driver_->enable_peer(0, 1), "enable_peer");
            peer = device(1);
        }
        for (const List& list : lists()) {
            measure(list, "within", b, a);
            measure(list, "up", b, host);
            measure(list, "down", host, a);
            if (peer == nullptr) continue;
            measure(list, "from_peer", b, peer);
            measure(list, "to_peer", peer, a);
        }
    }

  private:
    static constexpr std::size_t bytes = std::size_t{128} << 20;

    void ok(Status status, const char* what) {
        if (!status.ok())
            Report::stop(std::string(what) + " failed on the " + driver_->name() +
                         " driver: " + driver_->error_text(status));
    }
    std::byte* device(int number) {
        void* memory = nullptr;
        ok(driver_->allocate(number, bytes, &memory), "allocate");
        device_memory_.push_back(memory);
        return static_cast<std::byte*>(memory);
    }
    std::byte* pinned() {
        void* memory = nullptr;
        ok(driver_->allocate_pinned(bytes, &memory), "allocate_pinned");
        pinned_.push_back(memory);
        return static_cast<std::byte*>(memory);
    }
    void wait() { ok(driver_->synchronize_stream(stream_), "synchronize_stream"); }
    void clear(void* memory) {
        ok(driver_->fill(memory, "\x5a", 1, bytes, stream_), "fill");
        wait();
    }
    std::vector<std::byte> content(const void* memory) {
        std::vector<std::byte> result(bytes);
        ok(driver_->copy(result.data(), memory, bytes, stream_), "copy");
        wait();
        return result;
    }

    void measure(const List& list, const char* direction, std::byte* to, std::byte* from) {
        const std::string name = std::string(driver_->name()) + "/" + list.name + "/" + direction;
        if (!report_.wants(name)) return;
        {
            std::vector<std::byte> numbers(bytes);
            for (std::size_t i = 0; i < bytes; ++i) numbers[i] = static_cast<std::byte>(i * 2654435761u >> 13);
            ok(driver_->copy(from, numbers.data(), bytes, stream_), "copy");
            wait();
        }
        const int rounds = list.bytes() >= std::size_t{16} << 20 ? 5 : 50;
        const int repetitions = report_.repetitions(9);
        std::vector<BoxMove> moves;
        std::vector<raw::StridedCopy> copies;
        for (const Box& box : list.boxes) {
            moves.push_back(move_of(box, to, from));
            copies.push_back(copy_of(box, to, from));
        }
        clear(to);
        Samples samples = time_each(repetitions, [&] {
            for (int round = 0; round < rounds; ++round)
                ok(driver_->move_boxes(moves.data(), moves.size(), stream_), "move_boxes");
            wait();
        });
        for (double& sample : samples) sample /= rounds;
        Beside more;
        char rate[64];
        std::snprintf(rate, sizeof rate, "%.4g GB/s", static_cast<double>(list.bytes()) / 1e9 / median(samples));
        more.note = rate;
        if (driver_->kind() == Kind::cuda) {
            const std::vector<std::byte> ours = content(to);
            clear(to);
            const raw::Measured beside = raw::strided_copies(copies.data(), copies.size(), rounds, repetitions);
            if (!beside.ok()) Report::stop("the copies beside " + name + " failed: " + beside.error);
            more.raw = beside.seconds;
            if (content(to) != ours) Report::stop(name + ": boxes and copies left different bytes");
        }
        report_.add(name, samples, microseconds(), more);
    }

    std::shared_ptr<Driver> driver_;
    Report& report_;
    StreamHandle stream_;
    std::vector<void*> device_memory_;
    std::vector<void*> pinned_;
};

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    for (const Kind kind : {Kind::cuda, Kind::host}) {
        std::string reason;
        const std::shared_ptr<Driver> driver = open(kind, &reason);
        if (driver == nullptr) {
            report.skip(kind == Kind::cuda ? "cuda/boxes" : "host/boxes", reason);
            continue;
        }
        Bench(driver, report).run();
    }
}
