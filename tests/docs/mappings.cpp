// Prints which region of an array each task of a submit gets, for the mappings that docs/kmm draws: one line of JSON a
// mapping. The regions are those of the views that the tasks receive. scripts/draw_mappings.py reads the lines.
#include <cstddef>
#include <cstdio>
#include <string>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

namespace {

struct Picture {
    const char* name;
    kmm::DomainDim domain;
    kmm::DomainDim tile;
    int domain_rank;
};

template<std::size_t N>
std::string json(const kmm::Bounds<N>& bounds, std::size_t rank) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < rank; axis++) {
        text += (axis == 0 ? "[" : ", [") + std::to_string(bounds[axis].begin) + ", " +
                std::to_string(bounds[axis].end) + "]";
    }
    return text + "]";
}

template<std::size_t N, typename Access>
void print(const kmm::RuntimeHandle& rt, const char* expression, const Picture& picture,
           const kmm::Array<int, N>& array, const Access& access) {
    const std::size_t domain_rank = static_cast<std::size_t>(picture.domain_rank);
    std::printf("{\"name\": \"%s\", \"expression\": \"%s\", \"array\": %s, \"domain\": %s, \"tasks\": [", picture.name,
                expression, json(kmm::Bounds<N>(array.size()), N).c_str(),
                json(kmm::Bounds<3>(kmm::Dim<3>(picture.domain)), domain_rank).c_str());
    std::string separator;
    // In debug mode tasks run one after the other, in the order of their chunks.
    const auto task = [&separator, domain_rank](const kmm::Bounds<3>& chunk, const kmm::Subview<int, N>& view) {
        std::printf("%s{\"chunk\": %s, \"region\": %s}", separator.c_str(), json(chunk, domain_rank).c_str(),
                    json(view.bounds(), N).c_str());
        separator = ", ";
    };
    rt.wait(rt.parallel_submit(picture.domain, picture.tile, kmm::Host(task), kmm::one_to_one, access));
    std::printf("]}\n");
}

/// The text of the expression is what it is called in the picture.
#define PRINT(picture, array, ...) print(rt, #__VA_ARGS__, picture, array, __VA_ARGS__)

}  // namespace

int main() {
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.debug_mode = true;
    auto rt = kmm::make_runtime(config);
    kmm::set_global_log_level("error");  // debug mode logs regions that lie partly outside

    auto A = rt.array<int>(12);
    auto B = rt.array<int>(6);
    A.fill(0);
    B.fill(0);
    PRINT((Picture{"same-index", 12, 4, 1}), A, A[_x]);
    PRINT((Picture{"halo-1d", 12, 4, 1}), A, A[range(_x - 1, _x + 2)]);
    PRINT((Picture{"half", 12, 4, 1}), B, B[_x / 2]);
    PRINT((Picture{"tile", 3, 1, 1}), A, A.access(kmm::tile(4)));
    PRINT((Picture{"prefix", 12, 4, 1}), A, A[range(0, _x + 1)]);

    auto C = rt.array<int, 2>({4, 8});
    auto D = rt.array<int, 2>({8, 4});
    C.fill(0);
    D.fill(0);
    const Picture tiles{"", {8, 4}, {4, 2}, 2};
    const auto named = [&tiles](const char* name) { return Picture{name, tiles.domain, tiles.tile, 2}; };
    PRINT(named("same-index-2d"), C, C[_y][_x]);
    PRINT(named("halo-2d"), C, C[range(_y - 1, _y + 2)][range(_x - 1, _x + 2)]);
    PRINT(named("whole-rows"), C, C[_y][_]);
    PRINT(named("whole-columns"), C, C[_][_x]);
    PRINT(named("transposed"), D, D[_x][_y]);
    return 0;
}
