// How an array is cut: the chunks that its first write makes, and what tasks of another domain read of it.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

// Writes the number of the task into every element of its region.
__global__ void write_number(kmm::Range<int64_t> rows, kmm::Range<int64_t> columns, kmm::GPUSubviewMut<int, 2> a) {
    int64_t y = rows.begin + int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    int64_t x = columns.begin + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (y < rows.end && x < columns.end) a[y][x] = int(rows.begin / 2 * 2 + columns.begin / 3);
}

// Adds up one row. `a` has the indices of the whole array, and only the row that was asked for.
void add_row(kmm::Subview<int, 2> a, kmm::SubviewMut<int> sums) {
    int64_t row = a.begin(0);
    sums[row] = 0;
    for (int64_t x = a.begin(1); x < a.end(1); x++) sums[row] += a[row][x];
}

int main() {
    auto rt = kmm::make_runtime();
    auto a = kmm::Array<int, 2>{{4, 6}};  // 4 rows, 6 columns
    auto sums = kmm::Array<int>{4};

    // The domain has the axes x, y, z: 6 columns, 4 rows, cut into tiles of 3 columns and 2 rows.
    rt.parallel_submit({6, 4}, {3, 2}, kmm::GPUKernel(write_number, dim3(8, 8)), _y, _x, overwrite(a[_y][_x]));

    const kmm::Distribution<2> distribution = a.distribution();
    for (std::size_t i = 0; i < distribution.num_chunks(); i++) {
        const kmm::ArrayChunk<2> chunk = distribution.chunk(i);
        std::printf("chunk %zu: rows %ld to %ld, columns %ld to %ld\n", i, long(chunk.offset.x),
                    long(chunk.offset.x + chunk.size.x - 1), long(chunk.offset.y),
                    long(chunk.offset.y + chunk.size.y - 1));
    }

    // Four tasks, one a row: each reads parts of two chunks. The chunks of `a` stay as they are.
    rt.parallel_submit(4, 1, kmm::Host(add_row), a[_x][_], overwrite(sums[_x]));

    const std::vector<int> elements = a.copy_to_vector(), sum = sums.copy_to_vector();
    for (std::size_t y = 0; y < 4; y++) {
        for (std::size_t x = 0; x < 6; x++) std::printf("%d ", elements[y * 6 + x]);
        std::printf("  sum %d\n", sum[y]);
    }
    return sum == std::vector<int>{3, 3, 15, 15} ? 0 : 1;
}
