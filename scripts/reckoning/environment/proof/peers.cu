// Proof that GPUs reach each other: copies a pattern between every pair, reads it back and compares it.
// `nvidia-smi topo -p2p` says OK on machines where such a copy hangs or delivers other data. Prints one JSON line per pair,
// at once, so that the pair which hangs is known. The exit code is the number of pairs that failed.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static const size_t WORDS = 16u << 20;  // 64 MiB

__global__ void fill(unsigned *data, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    data[i] = (unsigned)i * 2654435761u + seed;
}

__global__ void compare(const unsigned *data, size_t n, unsigned seed, unsigned *wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    if (data[i] != (unsigned)i * 2654435761u + seed) atomicAdd(wrong, 1u);
}

static cudaError_t pair(int from, int to, int direct, unsigned *wrong, float *gib_s) {
  unsigned *source = nullptr, *target = nullptr, *count = nullptr;
  cudaEvent_t begin, end;
  float milliseconds = 0;
  cudaError_t error = cudaSetDevice(from);
  if (error == cudaSuccess && direct) {
    error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaGetLastError(), error = cudaSuccess;
  }
  if (error == cudaSuccess) error = cudaMalloc(&source, WORDS * sizeof(unsigned));
  if (error == cudaSuccess) fill<<<512, 256>>>(source, WORDS, 17u * from + to);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaSetDevice(to);
  if (error == cudaSuccess) error = cudaMalloc(&target, WORDS * sizeof(unsigned));
  if (error == cudaSuccess) error = cudaMalloc(&count, sizeof(unsigned));
  if (error == cudaSuccess) error = cudaMemset(target, 0, WORDS * sizeof(unsigned));
  if (error == cudaSuccess) error = cudaMemset(count, 0, sizeof(unsigned));
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaSetDevice(from);
  if (error == cudaSuccess) error = cudaEventCreate(&begin);
  if (error == cudaSuccess) error = cudaEventCreate(&end);
  if (error == cudaSuccess) error = cudaMemcpyPeer(target, to, source, from, WORDS * sizeof(unsigned));
  if (error == cudaSuccess) error = cudaEventRecord(begin);
  for (int i = 0; i < 4 && error == cudaSuccess; ++i)
    error = cudaMemcpyPeerAsync(target, to, source, from, WORDS * sizeof(unsigned));
  if (error == cudaSuccess) error = cudaEventRecord(end);
  if (error == cudaSuccess) error = cudaEventSynchronize(end);
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, begin, end);
  if (error == cudaSuccess) error = cudaSetDevice(to);
  if (error == cudaSuccess) compare<<<512, 256>>>(target, WORDS, 17u * from + to, count);
  if (error == cudaSuccess) error = cudaMemcpy(wrong, count, sizeof(unsigned), cudaMemcpyDeviceToHost);
  if (error == cudaSuccess && milliseconds > 0)
    *gib_s = 4.0f * WORDS * sizeof(unsigned) / (1u << 30) / (milliseconds / 1000.0f);
  cudaFree(target);
  cudaFree(count);
  cudaSetDevice(from);
  cudaFree(source);
  return error;
}

int main() {
  int count = 0, failed = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 99;
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      int direct = 0;
      unsigned wrong = 0;
      float gib_s = 0;
      cudaDeviceCanAccessPeer(&direct, from, to);
      printf("{\"from\": %d, \"to\": %d, \"direct\": %s, ", from, to, direct ? "true" : "false");
      fflush(stdout);
      cudaError_t error = pair(from, to, direct, &wrong, &gib_s);
      failed += error != cudaSuccess || wrong > 0;
      if (error == cudaSuccess) printf("\"error\": null, \"wrong_words\": %u, \"gib_s\": %.2f}\n", wrong, gib_s);
      else printf("\"error\": \"%s\", \"wrong_words\": null, \"gib_s\": null}\n", cudaGetErrorString(error));
      fflush(stdout);
    }
  return failed > 98 ? 98 : failed;
}
