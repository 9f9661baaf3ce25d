// A block of a vmm_memory_resource that another process opens: the pieces behind it are exported as file descriptors,
// sent over a socket, imported and mapped there, read, written, and the owner sees what was written. Exit status 77
// where there is no GPU whose memory can be shared so.
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"

namespace {

constexpr int no_gpu = 77;
constexpr std::size_t MiB = std::size_t{1} << 20;

/// What one piece holds of the block; a descriptor travels with it.
struct Part {
    std::size_t piece_bytes;  // 0: that was all
    std::size_t offset;       // of the part in the piece
    std::size_t bytes;
};

[[noreturn]] void stop(const char* what, int number) {
    std::fprintf(stderr, "%d: %s failed: %d\n", static_cast<int>(getpid()), what, number);
    std::exit(1);
}
#define CU(call)                                                                         \
    do {                                                                                 \
        if (const CUresult result = (call); result != CUDA_SUCCESS) stop(#call, result); \
    } while (false)

void use_device() {
    CUdevice device;
    CUcontext context;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
}

void send(int socket, const Part& part, int descriptor) {
    Part copy = part;
    iovec data{&copy, sizeof copy};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    if (sendmsg(socket, &message, 0) != static_cast<ssize_t>(sizeof copy)) stop("sendmsg", errno);
}

Part receive(int socket, int* descriptor) {
    Part part{};
    iovec data{&part, sizeof part};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket, &message, MSG_WAITALL) != static_cast<ssize_t>(sizeof part)) stop("recvmsg", errno);
    *descriptor = -1;
    if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr)
        std::memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    return part;
}

std::uint32_t word(std::size_t i) { return static_cast<std::uint32_t>(i * 2654435761u); }

/// Reads the block through the parts, and writes the complement of each word.
int be_reader(int socket) {
    std::size_t first = 0;
    for (;;) {
        int descriptor;
        const Part part = receive(socket, &descriptor);
        if (part.piece_bytes == 0) break;
        if (first == 0) use_device();
        CUmemGenericAllocationHandle piece;
        CU(cuMemImportFromShareableHandle(&piece, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(descriptor);
        CUdeviceptr address;
        CU(cuMemAddressReserve(&address, part.piece_bytes, 0, 0, 0));
        CU(cuMemMap(address, part.piece_bytes, 0, piece, 0));
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CU(cuMemSetAccess(address, part.piece_bytes, &access, 1));
        std::vector<std::uint32_t> words(part.bytes / 4);
        CU(cuMemcpyDtoH(words.data(), address + part.offset, part.bytes));
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (words[i] != word(first + i)) stop("what the other process wrote", static_cast<int>(i));
            words[i] = ~words[i];
        }
        first += words.size();
        CU(cuMemcpyHtoD(address + part.offset, words.data(), part.bytes));
        CU(cuCtxSynchronize());  // the copy may still be under way: what it reads is in a buffer of the driver's
        CU(cuMemUnmap(address, part.piece_bytes));
        CU(cuMemAddressFree(address, part.piece_bytes));
        CU(cuMemRelease(piece));
    }
    send(socket, {first, 0, 0}, -1);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::string(argv[1]) == "--reader") return be_reader(std::atoi(argv[2]));
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) stop("socketpair", errno);
    // Before this process has a context, which a child could not use.
    const pid_t reader = fork();
    if (reader == 0) {
        close(sockets[0]);
        const std::string number = std::to_string(sockets[1]);
        execl("/proc/self/exe", argv[0], "--reader", number.c_str(), nullptr);
        _exit(127);
    }
    close(sockets[1]);
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        send(sockets[0], {0, 0, 0}, -1);
        return no_gpu;
    }
    use_device();
    int can = 0;
    CU(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    if (can == 0) {
        send(sockets[0], {0, 0, 0}, -1);
        return no_gpu;
    }
    {
        rmm::mr::vmm_memory_resource::options how;
        how.maximum_size = 512 * MiB;
        how.export_handle_type = rmm::mr::vmm_memory_resource::handle_type::posix_file_descriptor;
        rmm::mr::vmm_memory_resource pool{how};
        const rmm::cuda_stream_view stream{};
        // Free memory in pieces: the block is mapped from several of them.
        std::vector<void*> small;
        for (int i = 0; i < 12; ++i) small.push_back(pool.allocate(8 * MiB, stream));
        for (std::size_t i = 0; i < small.size(); i += 2) pool.deallocate(small[i], 8 * MiB, stream);
        const std::size_t bytes = 40 * MiB;
        const auto block = reinterpret_cast<CUdeviceptr>(pool.allocate(bytes, stream));
        std::vector<std::uint32_t> words(bytes / 4);
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = word(i);
        stream.synchronize();
        CU(cuMemcpyHtoD(block, words.data(), bytes));
        CU(cuCtxSynchronize());
        int num_parts = 0;
        for (CUdeviceptr at = block; at < block + bytes;) {
            CUdeviceptr base = 0;
            std::size_t piece_bytes = 0;
            CU(cuMemGetAddressRange(&base, &piece_bytes, at));
            CUmemGenericAllocationHandle piece;
            CU(cuMemRetainAllocationHandle(&piece, reinterpret_cast<void*>(at)));
            int descriptor = -1;
            CU(cuMemExportToShareableHandle(&descriptor, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
            const std::size_t offset = at - base;
            const std::size_t part = std::min(piece_bytes - offset, static_cast<std::size_t>(block + bytes - at));
            send(sockets[0], {piece_bytes, offset, part}, descriptor);
            close(descriptor);
            CU(cuMemRelease(piece));
            at += part;
            ++num_parts;
        }
        send(sockets[0], {0, 0, 0}, -1);
        int none;
        if (receive(sockets[0], &none).piece_bytes != words.size()) stop("the reader's count", 0);
        std::vector<std::uint32_t> answer(words.size());
        CU(cuMemcpyDtoH(answer.data(), block, bytes));
        for (std::size_t i = 0; i < words.size(); ++i)
            if (answer[i] != ~words[i]) stop("what the reader wrote", static_cast<int>(i));
        pool.deallocate(reinterpret_cast<void*>(block), bytes, stream);
        for (std::size_t i = 1; i < small.size(); i += 2) pool.deallocate(small[i], 8 * MiB, stream);
        std::printf("%d parts of %zu MiB read and written by process %d\n", num_parts, bytes / MiB,
                    static_cast<int>(reader));
    }
    int status = 0;
    if (waitpid(reader, &status, 0) != reader || status != 0) stop("the reader", status);
    return 0;
}
